//! A package of its own, so that `cargo test -p infill-tidy` needs none of the program's
//! dependencies and answers in seconds. All of it is in the test `tidy`.
