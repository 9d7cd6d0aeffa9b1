//! Recorded answers.
