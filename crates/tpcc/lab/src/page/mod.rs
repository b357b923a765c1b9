//! Pages: one HTML file that needs no network and no script, with figures as SVG and their data behind them.
//!
//! [`figure`] says what a figure is, `thin` what of it is drawn, `scale` where values lie, `plot` draws, `ink` and `style` colour, `values` says what any JSON value holds;
//! [`html`] puts pages together, and [`run`] makes that of a run. That of experiments is made where those are known, in `lab`.
//!
//! Pages are made of files that others may have written: of any numbers, and of lists of any length. What is drawn and listed is
//! bounded, and the work grows with the length of the file.

pub mod figure;
pub mod html;
pub mod ink;
pub mod plot;
pub mod run;
pub mod scale;
mod schema;
mod style;
#[cfg(test)]
pub mod tests;
mod thin;
mod values;
