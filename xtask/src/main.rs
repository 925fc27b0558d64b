//! One entry for every habit of the project.

fn main() {}
