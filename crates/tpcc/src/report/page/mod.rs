//! Pages: one HTML file that needs no network and no script, with figures as SVG and their data behind them.
//!
//! [`figure`] says what a figure is, `scale` where values lie, `plot` draws, `ink` and `style` colour; [`html`] puts pages
//! together, and [`run`] makes that of a run. That of experiments is made where those are known, in `lab`.

pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod ink;
pub(crate) mod plot;
pub(crate) mod run;
pub(crate) mod scale;
mod schema;
mod style;
