//! For whom a route is.

/// For whom a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, also of a daemon that does not lead. Such a route names nobody.
    Open,
    /// Agents: they prove it in what they send.
    Agents,
    /// Those who change something: they prove it in what they send.
    Changes,
    /// Readers.
    Reads,
    /// Readers of what is computed for each of them: they prove who they are wherever anybody may read.
    Computes,
}
