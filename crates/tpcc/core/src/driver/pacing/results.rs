//! Result file of deferred Deliveries (2.7.2): outside the database, one line per executed Delivery.
//!
//! The format of a line is `QUEUED DONE WAREHOUSE CARRIER 1:ORDER 2:ORDER .. 10:-`. Both times are in microseconds since
//! 1970. The entry of a district is the number of the delivered order, or `-` if the district had no order to deliver.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::workload::generate::input::DeliveryInput;
use crate::workload::txn::delivery::DeliveryOutput;

/// First line of the result file.
const HEADER: &str = "# queued_us done_us warehouse carrier district:order ..; - where a district had no order\n";

/// Result file of deferred Deliveries, shared by the workers.
#[derive(Debug)]
pub struct DeliveryResults {
    path: PathBuf,
    file: Mutex<File>,
}

impl DeliveryResults {
    /// Opens the result file without truncating it.
    pub fn open(path: &Path) -> io::Result<DeliveryResults> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        Ok(DeliveryResults { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Truncates the file and writes the first line. A pipe or terminal is not truncated.
    pub(super) fn begin(&self) -> Result<(), String> {
        self.with(|file| {
            if file.metadata()?.is_file() {
                file.set_len(0)?;
                file.rewind()?;
            }
            file.write_all(HEADER.as_bytes())
        })
    }

    /// Appends the line of an executed Delivery. `line` is a reusable buffer.
    pub(super) fn write(
        &self,
        line: &mut String,
        input: &DeliveryInput,
        output: &DeliveryOutput,
        queued_us: u64,
        done_us: u64,
    ) -> Result<(), String> {
        line.clear();
        // Writing to a `String` cannot fail.
        let _ = write!(line, "{queued_us} {done_us} {} {}", input.w, input.carrier);
        for (district, order) in output.delivered.iter().enumerate() {
            let _ = match order {
                Some(order) => write!(line, " {}:{order}", district + 1),
                None => write!(line, " {}:-", district + 1),
            };
        }
        line.push('\n');
        self.with(|file| file.write_all(line.as_bytes()))
    }

    fn with(&self, work: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), String> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut file).map_err(|e| format!("{}: results of Deliveries cannot be written: {e}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use super::*;
    use crate::workload::schema::rows::Timestamp;

    #[test]
    fn a_line_says_which_orders_were_delivered_and_which_districts_skipped() {
        let path = std::env::temp_dir().join(format!("tpcc-deliveries-{}", std::process::id()));
        std::fs::write(&path, "of an earlier run").unwrap();
        let results = DeliveryResults::open(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of an earlier run");
        results.begin().unwrap();
        let input = DeliveryInput { w: 3, districts: 3, carrier: NonZeroU8::new(7).unwrap(), now: Timestamp::at(0) };
        let output = DeliveryOutput { delivered: [Some(2101), None, Some(9)].into_iter().collect() };
        results.write(&mut String::new(), &input, &output, 10, 12).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, format!("{HEADER}10 12 3 7 1:2101 2:- 3:9\n"));
    }

    #[test]
    fn a_full_disk_is_told_with_the_files_name() {
        let results = DeliveryResults::open(Path::new("/dev/full")).unwrap();
        assert!(results.begin().unwrap_err().starts_with("/dev/full: results of Deliveries"));
        assert!(DeliveryResults::open(Path::new("/proc/none/such")).is_err());
    }
}
