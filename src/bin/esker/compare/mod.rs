//! stub
use crate::failure::{Failure, Outcome};
use clap::Args;
#[derive(Args, Debug)]
pub struct Arguments {}
pub fn run(_: &Arguments) -> Outcome {
    Err(Failure::failed(""))
}
