//! What goes wrong, and the exact line that says so.

use crate::http::HttpRefusal;

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
    /// cache_memlimit: less than 8 MiB.
    MemoryTooSmall,
    /// cache_memlimit: so many MiB that bytes must be meant.
    MemoryInBytes,
    /// cache_memlimit: more than the machine has, or than addresses are reserved for.
    MemoryOutOfBounds,
    /// lru tune: shares of more than 80 %.
    LruShares,
    /// lru tune: a factor that is not above 0.
    LruFactors,
    /// lru_crawler sleep with more than a second.
    CrawlerSleep,
    /// lru_crawler enable, when it is.
    CrawlerEnabled,
    /// lru_crawler, when it is disabled.
    CrawlerDisabled,
    /// lru_crawler crawl, while it does.
    CrawlerBusy,
    /// stats store backup without a directory for it.
    BackupNotAllowed,
    /// `stats store backup` from a client that may not read and write everything, and does not show the token.
    BackupNotForUser,
    /// `stats replication compare` from a client that may not read and write everything.
    CompareNotForUser,
    /// `stats store backup` while another backup is running.
    BackupRunning,
    /// stats store backup with a name that is none.
    BadBackupName,
    /// A client's own CAS value, where versions order the changes of several sites.
    OwnVersion,
    /// lru_crawler crawl hash.
    CrawlByHash,
    /// lru_crawler: a class that there cannot be.
    BadClass,
    /// `-X`: lru_crawler metadump.
    MetadumpNotAllowed,
    /// `-X`: lru_crawler mgdump.
    MgdumpNotAllowed,
    /// `-X`: stats detail.
    DetailNotAllowed,
    /// `-X`: stats cachedump.
    CachedumpNotAllowed,
    /// stats detail with another word than on, off and dump.
    DetailUsage,
    /// stats cachedump with too few words.
    CachedumpUsage,
    /// stats cachedump: a class that there cannot be.
    IllegalClass,
    /// slabs reassign: a class that there cannot be.
    BadClasses,
    /// slabs reassign from a class to itself.
    SameClass,
    /// slabs reassign: nothing to move.
    NoSparePages,
    /// slabs reassign with `-o no_slab_reassign`.
    ReassignDisabled,
    /// slabs automove window: not 3 to 1800.
    AutomoveWindow,
    /// `-W`.
    WatchNotAllowed,
    /// watch: as many watch as may.
    TooManyWatchers,
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
    /// A change in a namespace that is read-only.
    ReadOnly,
    /// A change while the server is read-only for maintenance.
    Maintenance,
    /// A command in a namespace that its user may not use so.
    NotForUser,
    /// A change at a site that is new, and does not know enough of the other sites yet.
    NewSite,
    /// A change at a site whose store is an older copy of itself and that has not yet taken a copy of another site.
    OutdatedSite,
    /// A change at a site whose number another server also has.
    SameSite,
    /// A store of a value in a namespace that has used up its quota of disk.
    OverDiskQuota,
    /// A change for which the disk of the store has no room.
    StoreFull,
    /// A change, and the store writes no more since an fsync failed; or an item that was not made durable then.
    StoreReadOnly,
    /// A change that the store failed to write.
    StoreFailed,
    /// An item that cannot be read from the store.
    StoreUnreadable,
    /// A command for the home site of its key, which is not connected, or runs no such command. Nothing happened.
    HomeAway,
    /// The same, and too many others wait for the home. Nothing happened.
    HomeBusy,
    /// The home has not answered: it may have run the command.
    HomeSilent,
    /// A value too large to be sent to the home of its key.
    HomeTooLarge,
    /// Larger than `-I`, or than the namespace allows.
    TooLarge,
    /// A store found no memory.
    OutOfMemoryStoring,
    /// A line for which there is no memory.
    OutOfMemoryReading,
    /// There is no memory for an item that has to be read from the store.
    OutOfMemoryFetching,
    /// Anything else found no memory.
    OutOfMemory,
    /// HTTP: a request that is refused.
    Http(HttpRefusal),
}

/// The line, with its end, to a connection beyond the limit, of which nothing is read; in every dialect but HTTP.
pub const TOO_MANY_CONNECTIONS: &str = "ERROR Too many open connections\r\n";

impl Error {
    /// The line, without its end. What HTTP answers is in `http/refusal.rs`.
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
            Self::MemoryTooSmall => "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
            Self::MemoryInBytes => "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
            Self::MemoryOutOfBounds => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
            Self::LruShares => "ERROR hot and warm pcts must not exceed 80",
            Self::LruFactors => "ERROR hot/warm age factors must be greater than 0",
            Self::CrawlerSleep => "CLIENT_ERROR sleep must be one second or less",
            Self::CrawlerEnabled => "ERROR failed to start lru crawler thread",
            Self::CrawlerDisabled => "CLIENT_ERROR lru crawler disabled",
            Self::CrawlerBusy => "BUSY currently processing crawler request",
            Self::BackupNotAllowed => "CLIENT_ERROR backups not enabled",
            Self::BackupNotForUser => "CLIENT_ERROR backups need the right to everything or the backup token",
            Self::CompareNotForUser => "CLIENT_ERROR comparisons need the right to everything",
            Self::BackupRunning => "BUSY currently taking a backup",
            Self::BadBackupName => {
                "CLIENT_ERROR usage: stats store backup <name> [<earlier name>] [token=<token>]"
            }
            Self::OwnVersion => "CLIENT_ERROR CAS values of replicated items come from the server",
            Self::CrawlByHash => "ERROR an unknown error happened",
            Self::BadClass => "BADCLASS invalid class id",
            Self::MetadumpNotAllowed => "ERROR metadump not allowed",
            Self::MgdumpNotAllowed => "ERROR key dump not allowed",
            Self::DetailNotAllowed => "CLIENT_ERROR stats detail not allowed",
            Self::CachedumpNotAllowed => "CLIENT_ERROR stats cachedump not allowed",
            Self::DetailUsage => "CLIENT_ERROR usage: stats detail on|off|dump",
            Self::CachedumpUsage => "CLIENT_ERROR bad command line",
            Self::IllegalClass => "CLIENT_ERROR Illegal slab id",
            Self::BadClasses => "BADCLASS invalid src or dst class id",
            Self::SameClass => "SAME src and dst class are identical",
            Self::NoSparePages => "NOSPARE source class has no spare pages",
            Self::ReassignDisabled => "CLIENT_ERROR slab reassignment disabled",
            Self::AutomoveWindow => "CLIENT_ERROR automove window too low or too high",
            Self::WatchNotAllowed => "CLIENT_ERROR watch commands not allowed",
            Self::TooManyWatchers => "WATCHER_TOO_MANY log watcher limit reached",
            Self::NoTls => "Error TLS not enabled",
            Self::NoCertificates => "Error loading certificates: the old ones stay in use",
            Self::Unauthenticated => "CLIENT_ERROR unauthenticated",
            Self::AuthFailure => "CLIENT_ERROR authentication failure",
            Self::BadAuthToken => "CLIENT_ERROR bad authentication token format",
            Self::BadAuthTermination => "CLIENT_ERROR bad command line termination",
            Self::AuthTokenTooLong => "CLIENT_ERROR auth token too long",
            Self::NotOverUdp => "CLIENT_ERROR not over UDP",
            Self::TooLargeForUdp => "SERVER_ERROR too large for UDP",
            Self::ReadOnly => "SERVER_ERROR namespace is read-only",
            Self::Maintenance => "SERVER_ERROR read-only for maintenance",
            Self::NotForUser => "CLIENT_ERROR not allowed in this namespace",
            Self::NewSite => "SERVER_ERROR new site takes no changes before it has heard all others",
            Self::OutdatedSite => {
                "SERVER_ERROR site has an older copy of its store and waits for a copy of another site"
            }
            Self::SameSite => "SERVER_ERROR site takes no changes while another server has its number",
            Self::OverDiskQuota => "SERVER_ERROR namespace is over its disk quota",
            Self::StoreFull => "SERVER_ERROR store is full",
            Self::StoreReadOnly => "SERVER_ERROR store is read-only after a failed write",
            Self::StoreFailed => "SERVER_ERROR store cannot write",
            Self::StoreUnreadable => "SERVER_ERROR store cannot read this item",
            Self::HomeAway => "SERVER_ERROR home site of this key is away",
            Self::HomeBusy => "SERVER_ERROR home site of this key is busy",
            Self::HomeSilent => "SERVER_ERROR home site did not answer and may have run this",
            Self::HomeTooLarge => "SERVER_ERROR value too large for home site of this key",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::OutOfMemoryStoring => "SERVER_ERROR out of memory storing object",
            Self::OutOfMemoryFetching => "SERVER_ERROR out of memory reading item from store",
            Self::OutOfMemoryReading => "SERVER_ERROR out of memory reading request",
            Self::OutOfMemory => "SERVER_ERROR out of memory",
            Self::Http(refusal) => refusal.status_and_text().1,
        }
    }

    /// Where the next request begins cannot be known: close, once the error is told.
    pub fn is_fatal(self) -> bool {
        match self {
            Self::BadShape | Self::BadLengths => true,
            Self::Http(refusal) => refusal.closes(),
            _ => false,
        }
    }

    /// The server failed, not the client.
    pub fn is_server_side(self) -> bool {
        matches!(
            self,
            Self::ReadOnly
                | Self::NewSite
                | Self::OutdatedSite
                | Self::SameSite
                | Self::Maintenance
                | Self::OverDiskQuota
                | Self::StoreFull
                | Self::StoreReadOnly
                | Self::StoreFailed
                | Self::StoreUnreadable
                | Self::HomeAway
                | Self::HomeBusy
                | Self::HomeSilent
                | Self::HomeTooLarge
                | Self::TooLarge
                | Self::OutOfMemoryStoring
                | Self::OutOfMemoryFetching
                | Self::OutOfMemoryReading
                | Self::OutOfMemory
        )
    }
}
