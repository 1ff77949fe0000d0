//! What goes wrong, and the exact line that says so.

/// An error a client is told of. The line's first word says whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such command.
    UnknownCommand,
    /// No such group of statistics.
    UnknownStatistics,
    /// Binary: extras, key or value have sizes that the command does not take.
    BadShape,
    /// Binary: extras and key are larger than the body that they are part of.
    BadLengths,
    /// Too few words, a key too long, a number that is none.
    BadFormat,
    /// The value is not followed by CRLF.
    BadChunk,
    /// touch, gat, flush_all.
    InvalidExptime,
    /// incr, decr.
    InvalidDelta,
    /// Meta: a flag's argument is missing or no number.
    BadToken,
    /// Meta: a flag occurs twice.
    DuplicateFlag,
    /// Meta: no such flag.
    InvalidFlag,
    /// ma: any error in flags.
    InvalidOrDuplicateFlag,
    /// Meta: more flags than there may be.
    TooManyFlags,
    /// Meta: O with more than 31 bytes.
    OpaqueTooLong,
    /// Meta: the key is not base64.
    BadBase64,
    /// ma: J without a number.
    InvalidInitial,
    /// ma: D without a number.
    InvalidMetaDelta,
    /// ms: M with an unknown letter.
    InvalidStoreMode,
    /// ma: M with an unknown letter.
    InvalidArithMode,
    /// incr, decr, ma on a value that is no number.
    NonNumeric,
    /// `-F`.
    FlushNotAllowed,
    /// No `-A`.
    ShutdownNotEnabled,
    /// shutdown with an unknown word.
    InvalidShutdownMode,
    /// refresh_certs without TLS.
    NoTls,
    /// refresh_certs found files that cannot be used.
    NoCertificates,
    /// A command of a client that has not logged in.
    Unauthenticated,
    /// A login with a wrong password.
    AuthFailure,
    /// A text login: user and password cannot be told apart.
    BadAuthToken,
    /// A text login: no CRLF after the value.
    BadAuthTermination,
    /// A text login: the value is too long.
    AuthTokenTooLong,
    /// Over UDP: a command that is about the server, not about items.
    NotOverUdp,
    /// Over UDP: a reply beyond what is sent there.
    TooLargeForUdp,
    /// Larger than `-I`.
    TooLarge,
    /// A store found no memory.
    OutOfMemoryStoring,
    /// Anything else found no memory.
    OutOfMemory,
}

impl Error {
    /// The line, without its end.
    pub fn line(self) -> &'static str {
        match self {
            Self::UnknownCommand | Self::UnknownStatistics => "ERROR",
            // The text dialects have neither.
            Self::BadShape | Self::BadLengths => "CLIENT_ERROR invalid arguments",
            Self::BadFormat => "CLIENT_ERROR bad command line format",
            Self::BadChunk => "CLIENT_ERROR bad data chunk",
            Self::InvalidExptime => "CLIENT_ERROR invalid exptime argument",
            Self::InvalidDelta => "CLIENT_ERROR invalid numeric delta argument",
            Self::BadToken => "CLIENT_ERROR bad token in command line format",
            Self::DuplicateFlag => "CLIENT_ERROR duplicate flag",
            Self::InvalidFlag => "CLIENT_ERROR invalid flag",
            Self::InvalidOrDuplicateFlag => "CLIENT_ERROR invalid or duplicate flag",
            Self::TooManyFlags => "CLIENT_ERROR options flags are too long",
            Self::OpaqueTooLong => "CLIENT_ERROR opaque token too long",
            Self::BadBase64 => "CLIENT_ERROR error decoding key",
            Self::InvalidInitial => "CLIENT_ERROR invalid numeric initial value",
            Self::InvalidMetaDelta => "CLIENT_ERROR invalid numeric delta value",
            Self::InvalidStoreMode => "CLIENT_ERROR invalid mode for ms M token",
            Self::InvalidArithMode => "CLIENT_ERROR invalid mode for ma M token",
            Self::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value",
            Self::FlushNotAllowed => "CLIENT_ERROR flush_all not allowed",
            Self::ShutdownNotEnabled => "SERVER_ERROR: shutdown not enabled",
            Self::InvalidShutdownMode => "CLIENT_ERROR invalid shutdown mode",
            Self::NoTls => "Error TLS not enabled",
            Self::NoCertificates => "Error loading certificates: the old ones stay in use",
            Self::Unauthenticated => "CLIENT_ERROR unauthenticated",
            Self::AuthFailure => "CLIENT_ERROR authentication failure",
            Self::BadAuthToken => "CLIENT_ERROR bad authentication token format",
            Self::BadAuthTermination => "CLIENT_ERROR bad command line termination",
            Self::AuthTokenTooLong => "CLIENT_ERROR auth token too long",
            Self::NotOverUdp => "CLIENT_ERROR not over UDP",
            Self::TooLargeForUdp => "SERVER_ERROR too large for UDP",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::OutOfMemoryStoring => "SERVER_ERROR out of memory storing object",
            Self::OutOfMemory => "SERVER_ERROR out of memory",
        }
    }

    /// Where the next request begins cannot be known: close, once the error is told.
    pub fn is_fatal(self) -> bool {
        matches!(self, Self::BadShape | Self::BadLengths)
    }

    /// The server failed, not the client.
    pub fn is_server_side(self) -> bool {
        matches!(self, Self::TooLarge | Self::OutOfMemoryStoring | Self::OutOfMemory)
    }
}
