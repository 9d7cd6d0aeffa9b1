//! Whole simulations.
