//! Statistics of servers.

use std::ffi::{c_char, c_ulong, c_ulonglong, c_void};
use std::ptr::null_mut;

use super::{fail, query, session, versions};
use crate::abi::{
    Chars, Heap, Memc, Out, Return, StatArray, StatFn, StatSt, copied, export, export_calling, guarded,
};
use crate::core::{Core, Options};

export! {
    fn memcached_stat(memc: Memc, group: Chars, error: Out<Return>) -> *mut StatSt {
        match fetch(&memc, &group) {
            Ok((stats, code)) => {
                let stats = memc.settings().map_or(null_mut(), |settings| Heap::of(settings).store(&stats));
                let no_memory = || fail(&memc, Return::MEMORY_ALLOCATION_FAILURE, "");
                error.set(if stats.is_null() { no_memory() } else { code });
                stats
            }
            Err(code) => {
                error.set(code);
                null_mut()
            }
        }
    }

    fn memcached_stat_free(_memc: Memc, stats: StatArray) {
        stats.free();
    }

    fn memcached_stat_servername(stat: StatArray, group: Chars, host: Chars, port: u16) -> Return {
        let memc = Memc::at(Memc::null().create());
        let mut code = super::servers::add_inet(&memc, &host, port, 0);
        if code.is_success() {
            let told = fetch(&memc, &group);
            let (first, told) = match told {
                Ok((stats, code)) => (stats.first().copied(), code),
                Err(code) => (None, code),
            };
            code = told;
            // The client that it was made for is gone in a moment.
            let first = first.unwrap_or_else(|| StatSt::empty(null_mut()));
            stat.set(StatSt { root: null_mut(), ..first });
        }
        super::clients::free(&memc);
        code
    }

    fn memcached_stat_get_keys(memc: Memc, _stats: StatArray, error: Out<Return>) -> *mut *const c_char {
        let Some(settings) = memc.settings() else { return null_mut() };
        let keys: Vec<_> = NAMES
            .iter()
            .map(|name| name.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        let list = Heap::of(settings).store(&keys);
        error.set(if list.is_null() { Return::MEMORY_ALLOCATION_FAILURE } else { Return::SUCCESS });
        list
    }

    fn memcached_stat_get_value(memc: Memc, stats: StatArray, name: Chars, error: Out<Return>) -> *mut c_char {
        let Some(stat) = stats.slice(1).and_then(|stats| stats.first()) else {
            error.set(Return::INVALID_ARGUMENTS);
            return null_mut();
        };
        let name = name.text().map_or(&b""[..], |name| name.to_bytes());
        match stat.value(name) {
            Some(value) => {
                // `malloc`'s, as libmemcached's.
                let text = Heap::system().store_text(value.as_bytes());
                let no_memory = Return::MEMORY_ALLOCATION_FAILURE;
                error.set(if text.is_null() { no_memory } else { Return::SUCCESS });
                text
            }
            None => {
                error.set(fail(&memc, Return::INVALID_ARGUMENTS, "Invalid key provided"));
                null_mut()
            }
        }
    }
}

export_calling! {
    fn memcached_stat_execute(
        memc: Memc, group: Chars, callback: Option<StatFn>, context: *mut c_void,
    ) -> Return {
        let group = match guarded(|| begin_to_execute(&memc, &group)) {
            Ok(group) => group,
            Err(code) => return code,
        };
        let mut result = Return::SUCCESS;
        for at in 0..memc.read(|core| core.instances.len()).unwrap_or(0) {
            let told = guarded(|| match session(&memc) {
                Some((mut session, options)) => session.core.statistics(&options, at, &group),
                None => Err(Return::INVALID_ARGUMENTS),
            });
            let told = match told {
                Ok(told) => told,
                Err(Return::INVALID_ARGUMENTS) => return Return::INVALID_ARGUMENTS,
                // Part of a reply was dropped.
                Err(code @ (Return::UNKNOWN_READ_FAILURE | Return::MEMORY_ALLOCATION_FAILURE)) => {
                    result = code;
                    continue;
                }
                Err(_) => continue,
            };
            let Some(callback) = callback else { continue };
            for (mut name, mut value) in told {
                let instance = super::servers::instance(&memc, at);
                if instance.is_null() {
                    // A callback has removed it.
                    return result;
                }
                let (name_length, value_length) = (name.len(), value.len());
                name.push(0);
                value.push(0);
                callback(
                    instance,
                    name.as_ptr().cast(),
                    name_length,
                    value.as_ptr().cast(),
                    value_length,
                    context,
                );
            }
        }
        result
    }
}

/// Asks servers for their versions, and checks the name of a group.
fn begin_to_execute(memc: &Memc, group: &Chars) -> Result<Vec<u8>, Return> {
    if versions::fetch(memc).is_fatal() {
        return Err(super::errors::last(memc));
    }
    match session(memc) {
        // Here the empty name is the general group.
        _ if group.text().is_some_and(|group| group.is_empty()) => Ok(Vec::new()),
        Some((mut session, options)) => {
            let core = &mut session.core;
            let name = checked(core, &options, group)?;
            copied(name, 0).ok_or_else(|| core.fail(&options, Return::MEMORY_ALLOCATION_FAILURE, ""))
        }
        None => Err(Return::INVALID_ARGUMENTS),
    }
}

/// The name of a group, which may be of several words; of null, none. Errors: it could be read as a command.
fn checked<'g>(core: &mut Core, options: &Options, group: &'g Chars) -> Result<&'g [u8], Return> {
    let Some(group) = group.text().map(|group| group.to_bytes()) else { return Ok(b"") };
    if group.iter().all(|byte| *byte == b' ') {
        return Err(core.fail(options, Return::BAD_KEY_PROVIDED, "Key provided was too long."));
    }
    for word in group.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
        core.check_keys(options, &[word])?;
    }
    Ok(group)
}

/// Statistics of each server, and what went wrong.
pub(super) fn fetch(memc: &Memc, group: &Chars) -> Result<(Vec<StatSt>, Return), Return> {
    let Some((mut session, options)) = query(memc) else { return Err(Return::INVALID_ARGUMENTS) };
    let core = &mut session.core;
    core.begin(&options)?;
    if options.udp {
        return Err(core.fail(&options, Return::NOT_SUPPORTED, ""));
    }
    let group = checked(core, &options, group)?;
    let mut code = Return::SUCCESS;
    let mut stats = Vec::new();
    for at in 0..core.instances.len() {
        let mut stat = StatSt { pid: -1, ..StatSt::empty(memc.address()) };
        match core.statistics(&options, at, group) {
            Ok(told) => told.iter().for_each(|(name, value)| stat.take(name, value)),
            Err(Return::INVALID_ARGUMENTS) => code = Return::INVALID_ARGUMENTS,
            Err(_) if code == Return::SUCCESS => code = Return::SOME_ERRORS,
            Err(_) => {}
        }
        stats.push(stat);
    }
    Ok((stats, code))
}

/// The statistics that have a field of their own, in the order in which they are listed.
macro_rules! fields {
    ($($name:ident: $type:ty,)*) => {
        impl StatSt {
            /// Takes a statistic that a server sent, if there is a field for it.
            pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
                let text = str::from_utf8(value).unwrap_or_default();
                match name {
                    $(name if name == stringify!($name).as_bytes() => {
                        self.$name = text.parse::<$type>().unwrap_or(self.$name);
                    })*
                    b"pid" => self.pid = text.parse().unwrap_or(self.pid),
                    b"version" => {
                        self.version = [0; crate::abi::VERSION_SIZE];
                        let room = self.version.len() - 1;
                        self.version.iter_mut().zip(value.iter().take(room)).for_each(|(place, byte)| *place = *byte);
                    }
                    b"rusage_user" => {
                        (self.rusage_user_seconds, self.rusage_user_microseconds) = seconds(text);
                    }
                    b"rusage_system" => {
                        (self.rusage_system_seconds, self.rusage_system_microseconds) = seconds(text);
                    }
                    _ => {}
                }
            }

            /// A statistic as text.
            pub(super) fn value(&self, name: &[u8]) -> Option<String> {
                Some(match name {
                    $(name if name == stringify!($name).as_bytes() => self.$name.to_string(),)*
                    b"pid" => self.pid.to_string(),
                    b"version" => {
                        let text = self.version.split(|byte| *byte == 0).next().unwrap_or_default();
                        String::from_utf8_lossy(text).into_owned()
                    }
                    b"rusage_user" => format!("{}.{}", self.rusage_user_seconds, self.rusage_user_microseconds),
                    b"rusage_system" => {
                        format!("{}.{}", self.rusage_system_seconds, self.rusage_system_microseconds)
                    }
                    _ => return None,
                })
            }
        }
    };
}

fields! {
    uptime: c_ulong,
    time: c_ulong,
    pointer_size: c_ulong,
    curr_items: c_ulong,
    total_items: c_ulong,
    bytes: c_ulonglong,
    curr_connections: c_ulong,
    total_connections: c_ulong,
    connection_structures: c_ulong,
    cmd_get: c_ulonglong,
    cmd_set: c_ulonglong,
    get_hits: c_ulonglong,
    get_misses: c_ulonglong,
    evictions: c_ulonglong,
    bytes_read: c_ulonglong,
    bytes_written: c_ulonglong,
    limit_maxbytes: c_ulonglong,
    threads: c_ulong,
}

/// The names that `memcached_stat_get_keys` lists.
const NAMES: [&std::ffi::CStr; 22] = [
    c"pid",
    c"uptime",
    c"time",
    c"version",
    c"pointer_size",
    c"rusage_user",
    c"rusage_system",
    c"curr_items",
    c"total_items",
    c"bytes",
    c"curr_connections",
    c"total_connections",
    c"connection_structures",
    c"cmd_get",
    c"cmd_set",
    c"get_hits",
    c"get_misses",
    c"evictions",
    c"bytes_read",
    c"bytes_written",
    c"limit_maxbytes",
    c"threads",
];

/// `1.250000`: seconds, and their parts.
fn seconds(text: &str) -> (c_ulong, c_ulong) {
    let (whole, parts) = text.split_once(|c: char| c.is_ascii_punctuation()).unwrap_or((text, ""));
    (whole.parse().unwrap_or(0), parts.parse().unwrap_or(0))
}
