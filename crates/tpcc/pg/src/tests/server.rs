//! A PostgreSQL server in a temporary directory, for the tests of the engine and of the command. It listens only on the
//! loopback interface. Drop stops it and deletes its directory, also when a test panics.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A running server; see the module's documentation.
pub(crate) struct TestServer {
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl TestServer {
    /// Starts a server. Returns `None`, with a message, if PostgreSQL is not installed. With `password`, the server requires
    /// it.
    pub(crate) fn start(password: Option<&str>) -> Option<TestServer> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(bin) = binaries() else {
            eprintln!("did not run: no initdb in PATH or below /usr/lib/postgresql");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("tpcc-pg-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        // The port was free at the time of the bind.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = TestServer { bin, dir, port };
        if is_root() {
            let Some(user) = output(Command::new("id").args(["-u", "postgres"])) else {
                eprintln!("did not run: the server does not run as root, and there is no user postgres");
                return None;
            };
            chown(&server.dir, user.trim().parse().ok(), None).unwrap();
        }
        let secret = server.dir.join("password");
        fs::write(&secret, password.unwrap_or("none")).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
        let data = server.data();
        let method = if password.is_some() { "scram-sha-256" } else { "trust" };
        let pwfile = format!("--pwfile={}", secret.display());
        server
            .call("initdb", &["-D", &data, "-A", method, "-U", "postgres", "-E", "UTF8", "--locale=C", "-N", &pwfile]);
        server.launch();
        Some(server)
    }

    /// Starts the server, also after a stop.
    pub(crate) fn launch(&self) {
        let (data, log) = (self.data(), self.dir.join("data/log").display().to_string());
        let options = format!("-p {} -k {} -c listen_addresses=127.0.0.1 -c fsync=off", self.port, self.dir.display());
        self.call("pg_ctl", &["-D", &data, "-w", "-l", &log, "-o", &options, "start"]);
    }

    /// Stops the server immediately, without a clean end of its connections.
    pub(crate) fn stop(&self) {
        let _ = output(&mut self.command("pg_ctl", &["-D", &self.data(), "-m", "immediate", "stop"]));
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs SQL as superuser, on a server without a password.
    #[allow(dead_code, reason = "the tests of the engine have connections")]
    pub(crate) fn sql(&self, sql: &str) {
        let port = self.port.to_string();
        self.call(
            "psql",
            &["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql],
        );
    }

    fn data(&self) -> String {
        self.dir.join("data").display().to_string()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let path = self.bin.join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.args(args).current_dir(&self.dir);
        command
    }

    fn call(&self, program: &str, args: &[&str]) {
        assert!(output(&mut self.command(program, args)).is_some(), "{program} {args:?}");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0)
}

/// Runs a command and returns its output; `None` if the command failed. The command writes into a file, because its child
/// processes would keep a pipe open.
fn output(command: &mut Command) -> Option<String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("tpcc-pg-out-{}-{number}", std::process::id()));
    let file = fs::File::create(&path).unwrap();
    let errors = file.try_clone().unwrap();
    let status = command.stdin(Stdio::null()).stdout(file).stderr(errors).status();
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(&path);
    match status {
        Ok(status) if status.success() => Some(text),
        _ => {
            eprintln!("{command:?}: {status:?}\n{text}");
            None
        }
    }
}

/// Returns the directory that has all programs of the server and its client. A directory of links on the PATH may have only
/// some of these programs.
fn binaries() -> Option<PathBuf> {
    let has = |dir: &Path| ["initdb", "pg_ctl", "psql"].iter().all(|program| dir.join(program).is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    installed.sort();
    std::env::split_paths(&path).chain(installed.into_iter().rev()).find(|dir| has(dir))
}
