//! Why a request has no success: it is refused before it is executed, or fails then. The status and the words of each
//! reason.

use crate::Error;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// A line ends in LF without CR.
    BareLineFeed,
    /// The head is longer than [`super::HEAD_BYTES_MAX`].
    HeadTooLong,
    /// The first line is not `<method> <target> HTTP/1.1`.
    BadRequestLine,
    /// Another HTTP than 1.0 and 1.1.
    BadVersion,
    /// A line of the head is no header, or contains control characters.
    BadHeader,
    /// A header continues on the next line.
    FoldedHeader,
    /// A header that may occur once occurs twice.
    RepeatedHeader,
    /// HTTP/1.1 without Host, or with one that is none.
    BadHost,
    /// Content-Length is not one decimal number.
    BadLength,
    /// Content-Length and Transfer-Encoding, or the latter in HTTP/1.0.
    AmbiguousLength,
    /// Content without Content-Length.
    LengthNeeded,
    /// Another transfer coding than chunked.
    BadTransferCoding,
    /// Content-Length beyond every limit of items.
    FarTooLarge,
    /// Another expectation than 100-continue.
    BadExpectation,
    /// Content of a request that has none.
    NeedlessContent,
    /// A page of another site asks.
    CrossSite,
    /// Without the token.
    Unauthorized,
    /// For another host than this machine.
    Misdirected,
    /// The target is neither a path nor an http URI.
    BadTarget,
    /// There is nothing at this path.
    NoSuchPath,
    /// Not a method of items.
    BadMethod,
    /// Not a method of lists of items.
    BadListMethod,
    /// CONNECT: what follows might be no HTTP.
    Connect,
    /// A key that cannot be decoded, or is too long.
    BadKey,
    /// A slash in a key.
    SlashInKey,
    /// An unknown, missing or repeated parameter.
    BadQuery,
    /// More keys than [`super::KEYS_MAX`].
    TooManyKeys,
    /// Larder-Flags is not a number of 32 bits.
    BadFlags,
    /// Larder-TTL is not a number up to [`super::TTL_SECS_MAX`].
    BadTtl,
    /// If-Match or If-None-Match is not what this method takes.
    BadCondition,
    /// If-Match with a tag that no item has.
    ForeignTag,
    /// Content-Encoding.
    BadContentCoding,
    /// Content-Range.
    PartialContent,
    /// No memory for a list of keys.
    OutOfMemory,
}

impl HttpRefusal {
    /// The status code, and what the response says to people.
    pub fn status_and_text(self) -> (u16, &'static str) {
        match self {
            Self::BareLineFeed => (400, "lines end in CR LF"),
            Self::HeadTooLong => (431, "a head has at most 16 KiB"),
            Self::BadRequestLine => (400, "the first line is not a method, a target and HTTP/1.1"),
            Self::BadVersion => (505, "HTTP/1.1 and HTTP/1.0 only"),
            Self::BadHeader => (400, "a header is not a name, a colon and a value"),
            Self::FoldedHeader => (400, "a header is one line"),
            Self::RepeatedHeader => (400, "a header is repeated that may occur once"),
            Self::BadHost => (400, "HTTP/1.1 has one Host"),
            Self::BadLength => (400, "Content-Length is one decimal number"),
            Self::AmbiguousLength => (400, "Transfer-Encoding beside Content-Length, or in HTTP/1.0"),
            Self::LengthNeeded => (411, "content needs a Content-Length; chunks are not taken"),
            Self::BadTransferCoding => (501, "no transfer coding is taken"),
            Self::FarTooLarge => (413, "larger than any item"),
            Self::BadExpectation => (417, "only 100-continue is supported"),
            Self::NeedlessContent => (400, "this request has no content"),
            Self::CrossSite => (403, "web pages are not served"),
            Self::Unauthorized => (401, "a bearer token is needed"),
            Self::Misdirected => {
                (421, "ask for this listener by its address, or as localhost; with a token any name will do")
            }
            Self::BadTarget => (400, "the target is not a path of visible ASCII characters"),
            Self::NoSuchPath => (404, "there is nothing here; items are below /v1/items/"),
            Self::BadMethod => (405, "items accept GET, HEAD, PUT, DELETE and POST"),
            Self::BadListMethod => (405, "lists of items accept GET and HEAD"),
            Self::Connect => (405, "larderd is not a proxy"),
            Self::BadKey => {
                (400, "a key has 1 to 250 bytes, percent-encoded; 186 with spaces or control characters")
            }
            Self::SlashInKey => (400, "a slash in a key is written %2F"),
            Self::BadQuery => (400, "a parameter is unknown, missing, repeated or malformed"),
            Self::TooManyKeys => (400, "a list has at most 100 keys"),
            Self::BadFlags => (400, "Larder-Flags is a number below 2^32"),
            Self::BadTtl => (400, "Larder-TTL is a number of seconds up to 2592000 (30 days); 0 is never"),
            Self::BadCondition => {
                (400, "If-Match takes one tag or *; If-None-Match takes * with PUT, tags with GET")
            }
            Self::ForeignTag => (412, "no item has this tag"),
            Self::BadContentCoding => (415, "values are stored as they are, without Content-Encoding"),
            Self::PartialContent => (400, "values are stored whole, without Content-Range"),
            Self::OutOfMemory => (503, "out of memory"),
        }
    }

    /// Where the next request begins, or whether one follows, is not certain: the connection is closed.
    pub fn closes(self) -> bool {
        matches!(
            self,
            Self::BareLineFeed
                | Self::HeadTooLong
                | Self::BadRequestLine
                | Self::BadVersion
                | Self::BadHeader
                | Self::FoldedHeader
                | Self::RepeatedHeader
                | Self::BadHost
                | Self::BadLength
                | Self::AmbiguousLength
                | Self::LengthNeeded
                | Self::BadTransferCoding
                | Self::FarTooLarge
                | Self::BadExpectation
                | Self::NeedlessContent
                | Self::Connect
        )
    }
}

/// The status code of an error, and what the response says to people.
pub(super) fn status_and_text(error: Error) -> (u16, &'static str) {
    match error {
        Error::Http(refusal) => refusal.status_and_text(),
        Error::OverDiskQuota => (507, "the namespace is over its disk quota"),
        Error::StoreFull => (507, "the store is full"),
        Error::StoreReadOnly => (503, "the store is read-only after a failed write"),
        Error::NewSite => (503, "the site is new, and takes no changes before it has heard all others"),
        Error::OutdatedSite => {
            (503, "the site has an older copy of its store, and waits for a copy of another site")
        }
        Error::SameSite => (503, "the site takes no changes while another server has its number"),
        Error::StoreFailed => (503, "the store cannot write"),
        Error::StoreUnreadable => (500, "the store cannot read this item"),
        Error::HomeAway => (503, "the home site of this key is away"),
        Error::HomeBusy => (503, "the home site of this key is busy"),
        Error::HomeSilent => (504, "the home site did not answer, and may have done this"),
        Error::HomeTooLarge => (413, "too large for the home site of this key"),
        Error::ReadOnly => (403, "the namespace is read-only"),
        Error::Maintenance => (503, "the server is read-only for maintenance"),
        Error::NotForUser => (403, "the namespace is for users who log in"),
        Error::TooLarge => (413, "larger than the largest item (-I)"),
        Error::OutOfMemoryStoring | Error::OutOfMemory => (507, "out of memory"),
        Error::OutOfMemoryFetching => (503, "out of memory for an item of the store"),
        Error::OutOfMemoryReading => (503, "out of memory"),
        Error::NonNumeric => (409, "the value is not a number"),
        other => (400, other.line()),
    }
}

/// With 404.
pub(super) const NO_SUCH_ITEM: &str = "no such item";
/// With 412: If-Match or If-None-Match does not hold.
pub(super) const CONDITION_FAILS: &str = "the condition does not hold";
/// The whole response to a connection beyond the limit, of which nothing is read.
pub const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
