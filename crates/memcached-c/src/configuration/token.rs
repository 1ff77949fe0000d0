//! The words of a configuration string. Of several that fit, the longest counts, as in libmemcached's scanner.

/// A word: its kind, its number among libmemcached's tokens, and its text without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) name: &'static str,
    pub(super) text: &'a [u8],
}

/// Kinds of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `--SERVER=`, `RESET`, `MD5`: a word of [`WORDS`].
    Word,
    /// Of this library, with all that belongs to it.
    Tls,
    UnknownOption,
    Number,
    Port,
    Weight,
    IpAddress,
    HostName,
    String,
    QuotedString,
    Comment,
    Mark,
    Unknown,
    End,
}

/// Takes words from the head of a text.
pub(super) struct Scanner<'a> {
    rest: &'a [u8],
    is_at_line: bool,
    /// A name is a host's between `--SERVER=` and the end of its entry.
    pub(super) expects_host: bool,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, is_at_line: true, expects_host: false }
    }

    /// The next word.
    pub(super) fn next(&mut self) -> Token<'a> {
        while let [b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.is_at_line = self.rest.first() == Some(&b'\n');
            self.rest = rest;
        }
        let token = self.longest();
        self.is_at_line = false;
        token
    }

    fn longest(&mut self) -> Token<'a> {
        let rest = self.rest;
        if rest.is_empty() {
            return Token { kind: Kind::End, number: 0, name: "\"end of file\"", text: b"" };
        }
        if let Some(word) = self.tls() {
            return word;
        }
        // In the order in which they win if they are equally long.
        let mut best = self.at_head(Kind::Unknown, 271, "UNKNOWN", 1);
        let mut offer = |token: Token<'a>, bytes: usize, best_bytes: &mut usize| {
            if bytes > *best_bytes {
                *best_bytes = bytes;
                best = token;
            }
        };
        let mut bytes = 0;
        if let b'=' | b',' | b' ' = rest[0] {
            let (number, name) = [(61, "'='"), (44, "','"), (32, "' '")]
                [[b'=', b',', b' '].iter().position(|mark| *mark == rest[0]).unwrap_or(0)];
            offer(self.at_head(Kind::Mark, number, name, 1), 1, &mut bytes);
        }
        let digits = count(rest, u8::is_ascii_digit);
        offer(self.at_head(Kind::Number, 320, "NUMBER", digits), digits, &mut bytes);
        for (head, kind, number, name) in
            [(&b":"[..], Kind::Port, 321, "PORT"), (b"/?", Kind::Weight, 322, "WEIGHT_START")]
        {
            if let Some(after) = rest.strip_prefix(head) {
                let digits = count(after, u8::is_ascii_digit).min(5);
                let length = if digits > 0 { head.len() + digits } else { 0 };
                offer(self.at_head(kind, number, name, length), length, &mut bytes);
            }
        }
        if self.is_at_line
            && rest[0] == b'#'
            && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
        {
            offer(self.at_head(Kind::Comment, 258, "COMMENT", end), end, &mut bytes);
        }
        for (text, number, name) in WORDS {
            if rest.get(..text.len()).is_some_and(|head| head.eq_ignore_ascii_case(text.as_bytes())) {
                offer(self.at_head(Kind::Word, *number, name, text.len()), text.len(), &mut bytes);
            }
        }
        if let Some(after) = rest.strip_prefix(b"--") {
            let length = 2 + count(after, u8::is_ascii_alphanumeric);
            offer(self.at_head(Kind::UnknownOption, 270, "UNKNOWN_OPTION", length), length, &mut bytes);
        }
        let length = ip_address(rest);
        offer(self.at_head(Kind::IpAddress, 323, "IPADDRESS", length), length, &mut bytes);
        let length = name(rest);
        let (kind, number, word) = match self.expects_host {
            true => (Kind::HostName, 324, "HOSTNAME"),
            false => (Kind::String, 325, "STRING"),
        };
        offer(self.at_head(kind, number, word, length), length, &mut bytes);
        if self.expects_host
            && rest[0] == b'['
            && let Some(end) = rest.iter().position(|byte| *byte == b']')
        {
            offer(self.at_head(Kind::HostName, 324, "HOSTNAME", end + 1), end + 1, &mut bytes);
        }
        if let Some(length) = quoted(rest) {
            let text = rest.get(1..length - 1).unwrap_or_default();
            let token = Token { text, ..self.at_head(Kind::QuotedString, 326, "QUOTED_STRING", length) };
            offer(token, length, &mut bytes);
        }
        self.rest = rest.get(bytes.max(1)..).unwrap_or_default();
        best
    }

    fn at_head(&self, kind: Kind, number: u32, name: &'static str, bytes: usize) -> Token<'a> {
        Token { kind, number, name, text: self.rest.get(..bytes).unwrap_or_default() }
    }

    /// `--TLS…` up to the next space outside of quotes.
    fn tls(&mut self) -> Option<Token<'a>> {
        let is_tls = self.rest.get(..5).is_some_and(|head| head.eq_ignore_ascii_case(b"--TLS"));
        if !is_tls {
            return None;
        }
        let mut is_quoted = false;
        let end = self.rest.iter().position(|byte| {
            is_quoted ^= *byte == b'"';
            !is_quoted && byte.is_ascii_whitespace()
        });
        let (text, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(Token { kind: Kind::Tls, number: 270, name: "UNKNOWN_OPTION", text })
    }
}

fn count(text: &[u8], is_one: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_one(byte)).count()
}

/// Four numbers of up to three digits.
fn ip_address(text: &[u8]) -> usize {
    let mut at = 0;
    for part in 0..4 {
        if part > 0 {
            if text.get(at) != Some(&b'.') {
                return 0;
            }
            at += 1;
        }
        match count(text.get(at..).unwrap_or_default(), u8::is_ascii_digit) {
            0 => return 0,
            digits => at += digits.min(3),
        }
    }
    at
}

/// At least three letters, digits, and between the first and the last also `.`, `_`, `-`.
fn name(text: &[u8]) -> usize {
    if !text.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let all = count(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    let last = text.get(..all).unwrap_or_default().iter().rposition(u8::is_ascii_alphanumeric).unwrap_or(0);
    if last >= 2 { last + 1 } else { 0 }
}

/// The length of a text in quotes, with them.
fn quoted(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    let inner = text.strip_prefix(b"\"")?;
    let end = inner.iter().position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    Some(end + 2)
}

/// Words with their numbers among libmemcached's tokens, and their names.
const WORDS: &[(&str, u32, &str)] = &[
    ("--SERVER=", 266, "SERVER"),
    ("--SOCKET=", 267, "CSL_SOCKET"),
    ("--BINARY-PROTOCOL", 272, "BINARY_PROTOCOL"),
    ("--BUFFER-REQUESTS", 273, "BUFFER_REQUESTS"),
    ("--CONFIGURE-FILE=", 264, "CONFIGURE_FILE"),
    ("--CONNECT-TIMEOUT=", 274, "CONNECT_TIMEOUT"),
    ("--DISTRIBUTION=", 275, "DISTRIBUTION"),
    ("--HASH-WITH-NAMESPACE", 277, "HASH_WITH_NAMESPACE"),
    ("--HASH=", 276, "HASH"),
    ("--IO-BYTES-WATERMARK=", 278, "IO_BYTES_WATERMARK"),
    ("--IO-KEY-PREFETCH=", 279, "IO_KEY_PREFETCH"),
    ("--IO-MSG-WATERMARK=", 280, "IO_MSG_WATERMARK"),
    ("--NOREPLY", 283, "NOREPLY"),
    ("--NUMBER-OF-REPLICAS=", 284, "NUMBER_OF_REPLICAS"),
    ("--POLL-TIMEOUT=", 285, "POLL_TIMEOUT"),
    ("--RANDOMIZE-REPLICA-READ", 286, "RANDOMIZE_REPLICA_READ"),
    ("--RCV-TIMEOUT=", 287, "RCV_TIMEOUT"),
    ("--REMOVE-FAILED-SERVERS=", 288, "REMOVE_FAILED_SERVERS"),
    ("--RETRY-TIMEOUT=", 289, "RETRY_TIMEOUT"),
    ("--SND-TIMEOUT=", 290, "SND_TIMEOUT"),
    ("--SOCKET-RECV-SIZE=", 291, "SOCKET_RECV_SIZE"),
    ("--SOCKET-SEND-SIZE=", 292, "SOCKET_SEND_SIZE"),
    ("--SORT-HOSTS", 293, "SORT_HOSTS"),
    ("--SUPPORT-CAS", 294, "SUPPORT_CAS"),
    ("--TCP-KEEPALIVE", 298, "_TCP_KEEPALIVE"),
    ("--TCP-KEEPIDLE", 299, "_TCP_KEEPIDLE"),
    ("--TCP-NODELAY", 300, "_TCP_NODELAY"),
    ("--USE-UDP", 296, "USE_UDP"),
    ("--USER-DATA", 295, "USER_DATA"),
    ("--VERIFY-KEY", 297, "VERIFY_KEY"),
    ("--POOL-MIN=", 303, "POOL_MIN"),
    ("--POOL-MAX=", 304, "POOL_MAX"),
    ("--NAMESPACE=", 302, "NAMESPACE"),
    ("--FETCH-VERSION", 301, "FETCH_VERSION"),
    ("INCLUDE", 263, "INCLUDE"),
    ("RESET", 261, "RESET"),
    ("DEBUG", 262, "PARSER_DEBUG"),
    ("SERVERS", 268, "SERVERS"),
    ("END", 259, "END"),
    ("CSL_ERROR", 260, "CSL_ERROR"),
    ("TRUE", 317, "CSL_TRUE"),
    ("FALSE", 318, "CSL_FALSE"),
    ("CONSISTENT", 314, "CONSISTENT"),
    ("MODULA", 315, "MODULA"),
    ("RANDOM", 316, "RANDOM"),
    ("MD5", 305, "MD5"),
    ("CRC", 306, "CRC"),
    ("FNV1_64", 307, "FNV1_64"),
    ("FNV1A_64", 308, "FNV1A_64"),
    ("FNV1_32", 309, "FNV1_32"),
    ("FNV1A_32", 310, "FNV1A_32"),
    ("HSIEH", 311, "HSIEH"),
    ("MURMUR", 312, "MURMUR"),
    ("JENKINS", 313, "JENKINS"),
];
