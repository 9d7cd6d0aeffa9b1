//! Replays of small logs.
