//! Pages: HTML files that need no network and no script, with figures as SVG and their data.
//!
//! [`figure`] defines figures, `thin` selects the points to draw, `scale` computes axes, `plot` draws, `ink` and `style`
//! give colours, and `values` formats JSON values. [`html`] has the elements of pages, and [`run`] makes the page of a run.
//! The pages of experiments are made in [`crate::reproduce`].
//!
//! Pages are made from files of any origin, with any numbers and with lists of any length. The number of drawn points and of
//! listed rows is bounded, and the work grows with the length of the file.

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
