//! Return codes.

/// A `memcached_return_t`. C code may hand over any number.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Return(pub u32);

/// The codes in order, each with its text.
macro_rules! returns {
    ($($name:ident = $code:literal $text:literal,)*) => {
        #[expect(dead_code, reason = "the numbers are those of C, used here or not")]
        impl Return {
            $(pub(crate) const $name: Self = Self($code);)*
        }

        /// The texts, each with the NUL that ends it.
        const TEXTS: &[&str] = &[$(concat!($text, "\0")),*];
    };
}

returns! {
    SUCCESS = 0 "SUCCESS",
    FAILURE = 1 "FAILURE",
    HOST_LOOKUP_FAILURE = 2 "getaddrinfo() or getnameinfo() HOSTNAME LOOKUP FAILURE",
    CONNECTION_FAILURE = 3 "CONNECTION FAILURE",
    CONNECTION_BIND_FAILURE = 4 "CONNECTION BIND FAILURE",
    WRITE_FAILURE = 5 "WRITE FAILURE",
    READ_FAILURE = 6 "READ FAILURE",
    UNKNOWN_READ_FAILURE = 7 "UNKNOWN READ FAILURE",
    PROTOCOL_ERROR = 8 "PROTOCOL ERROR",
    CLIENT_ERROR = 9 "CLIENT ERROR",
    SERVER_ERROR = 10 "SERVER ERROR",
    ERROR = 11 "ERROR was returned by server",
    DATA_EXISTS = 12 "CONNECTION DATA EXISTS",
    DATA_DOES_NOT_EXIST = 13 "CONNECTION DATA DOES NOT EXIST",
    NOTSTORED = 14 "NOT STORED",
    STORED = 15 "STORED",
    NOTFOUND = 16 "NOT FOUND",
    MEMORY_ALLOCATION_FAILURE = 17 "MEMORY ALLOCATION FAILURE",
    PARTIAL_READ = 18 "PARTIAL READ",
    SOME_ERRORS = 19 "SOME ERRORS WERE REPORTED",
    NO_SERVERS = 20 "NO SERVERS DEFINED",
    END = 21 "SERVER END",
    DELETED = 22 "SERVER DELETE",
    VALUE = 23 "SERVER VALUE",
    STAT = 24 "STAT VALUE",
    ITEM = 25 "ITEM VALUE",
    ERRNO = 26 "SYSTEM ERROR",
    FAIL_UNIX_SOCKET = 27 "COULD NOT OPEN UNIX SOCKET",
    NOT_SUPPORTED = 28 "ACTION NOT SUPPORTED",
    NO_KEY_PROVIDED = 29 "A KEY LENGTH OF ZERO WAS PROVIDED",
    FETCH_NOTFINISHED = 30 "FETCH WAS NOT COMPLETED",
    TIMEOUT = 31 "A TIMEOUT OCCURRED",
    BUFFERED = 32 "ACTION QUEUED",
    BAD_KEY_PROVIDED = 33 "A BAD KEY WAS PROVIDED/CHARACTERS OUT OF RANGE",
    INVALID_HOST_PROTOCOL = 34 "THE HOST TRANSPORT PROTOCOL DOES NOT MATCH THAT OF THE CLIENT",
    SERVER_MARKED_DEAD = 35 "SERVER IS MARKED DEAD",
    UNKNOWN_STAT_KEY = 36 "ENCOUNTERED AN UNKNOWN STAT KEY",
    E2BIG = 37 "ITEM TOO BIG",
    INVALID_ARGUMENTS = 38 "INVALID ARGUMENTS",
    KEY_TOO_BIG = 39 "KEY RETURNED FROM SERVER WAS TOO LARGE",
    AUTH_PROBLEM = 40 "FAILED TO SEND AUTHENTICATION TO SERVER",
    AUTH_FAILURE = 41 "AUTHENTICATION FAILURE",
    AUTH_CONTINUE = 42 "CONTINUE AUTHENTICATION",
    PARSE_ERROR = 43 "ERROR OCCURED WHILE PARSING",
    PARSE_USER_ERROR = 44 "USER INITIATED ERROR OCCURED WHILE PARSING",
    DEPRECATED = 45 "DEPRECATED",
    IN_PROGRESS = 46 "OPERATION IN PROCESS",
    SERVER_TEMPORARILY_DISABLED = 47 "SERVER HAS FAILED AND IS DISABLED UNTIL TIMED RETRY",
    SERVER_MEMORY_ALLOCATION_FAILURE = 48 "SERVER FAILED TO ALLOCATE OBJECT",
}

impl Return {
    /// The text of the code, with a NUL at its end.
    pub(crate) fn text_with_nul(self) -> &'static str {
        TEXTS.get(self.0 as usize).copied().unwrap_or("INVALID memcached_return_t\0")
    }

    /// The text of the code.
    pub(crate) fn text(self) -> &'static str {
        self.text_with_nul().trim_end_matches('\0')
    }

    /// `memcached_success`.
    pub(crate) fn is_success(self) -> bool {
        matches!(
            self,
            Self::SUCCESS
                | Self::BUFFERED
                | Self::DELETED
                | Self::END
                | Self::ITEM
                | Self::STAT
                | Self::STORED
                | Self::VALUE
        )
    }

    /// `memcached_failed`.
    pub(crate) fn is_failure(self) -> bool {
        !self.is_success() && self != Self::AUTH_CONTINUE
    }

    /// `memcached_fatal`: an error that is remembered.
    pub(crate) fn is_fatal(self) -> bool {
        self.is_failure()
            && !matches!(
                self,
                Self::CLIENT_ERROR
                    | Self::DATA_EXISTS
                    | Self::E2BIG
                    | Self::ERROR
                    | Self::NOTFOUND
                    | Self::NOTSTORED
                    | Self::SERVER_MEMORY_ALLOCATION_FAILURE
            )
    }
}
