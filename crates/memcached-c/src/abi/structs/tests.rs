//! Sizes, offsets and numbers, as C compilers see them in this library's header and in libmemcached's.

use std::fmt::Write as _;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use super::*;

/// Names of C with their sizes and offsets: `memcached_st`, `memcached_st.user_data`.
macro_rules! layout {
    ($($name:literal $type:ty { $($field:literal $path:ident,)* })*) => {
        vec![$(
            (format!("sizeof({})", $name), size_of::<$type>()),
            $((format!("offsetof({}, {})", $name, $field), offset_of!($type, $path)),)*
        )*]
    };
}

fn expected() -> Vec<(String, usize)> {
    let mut layout = layout! {
        "struct memcached_st" MemcachedSt {
            "distribution" distribution, "hashkit" hashkit, "server_info" server_version,
            "number_of_hosts" number_of_hosts, "servers" servers,
            "last_disconnected_server" last_disconnected_server, "snd_timeout" snd_timeout,
            "rcv_timeout" rcv_timeout, "server_failure_limit" server_failure_limit,
            "server_timeout_limit" server_timeout_limit, "io_msg_watermark" io_msg_watermark,
            "io_bytes_watermark" io_bytes_watermark, "io_key_prefetch" io_key_prefetch,
            "tcp_keepidle" tcp_keepidle, "poll_timeout" poll_timeout, "connect_timeout" connect_timeout,
            "retry_timeout" retry_timeout, "dead_timeout" dead_timeout, "send_size" send_size,
            "recv_size" recv_size, "user_data" user_data, "query_id" query_id,
            "number_of_replicas" number_of_replicas, "result" result, "ketama" ketama_weighted,
            "ketama.continuum_count" ketama_continuum_count,
            "ketama.next_distribution_rebuild" ketama_next_distribution_rebuild,
            "ketama.continuum" ketama_continuum, "virtual_bucket" virtual_bucket, "allocators" allocators,
            "on_clone" on_clone, "on_cleanup" on_cleanup, "get_key_failure" get_key_failure,
            "delete_trigger" delete_trigger, "callbacks" callbacks, "sasl" sasl,
            "error_messages" error_messages, "_namespace" namespace, "configure" configure, "options" options,
        }
        "struct memcached_result_st" ResultSt {
            "item_flags" item_flags, "item_expiration" item_expiration, "key_length" key_length,
            "item_cas" item_cas, "root" root, "value" value, "numeric_value" numeric_value, "count" count,
            "item_key" item_key, "options" options,
        }
        "struct memcached_string_st" StringSt {
            "end" end, "string" string, "current_size" current_size, "root" root, "options" options,
        }
        "struct memcached_server_st" ServerSt {
            "number_of_hosts" number_of_hosts, "cursor_active" cursor_active, "port" port, "weight" weight,
            "version" version, "state" state, "io_wait_count" io_wait_count, "major_version" major_version,
            "micro_version" micro_version, "minor_version" minor_version, "type" kind,
            "next_retry" next_retry, "root" root, "limit_maxbytes" limit_maxbytes,
            "error_messages" error_messages, "hostname" hostname,
        }
        "struct memcached_stat_st" StatSt {
            "connection_structures" connection_structures, "pid" pid, "pointer_size" pointer_size,
            "threads" threads, "uptime" uptime, "bytes" bytes, "limit_maxbytes" limit_maxbytes,
            "version" version, "root" root,
        }
        "struct memcached_analysis_st" AnalysisSt {
            "average_item_size" average_item_size, "oldest_server" oldest_server,
            "pool_hit_ratio" pool_hit_ratio, "least_remaining_bytes" least_remaining_bytes,
        }
        "struct memcached_allocator_t" AllocatorSt {
            "calloc" calloc, "free" free, "malloc" malloc, "realloc" realloc, "context" context,
        }
        "struct memcached_sasl_st" SaslSt { "callbacks" callbacks, "is_allocated" is_allocated, }
        "struct hashkit_st" HashkitSt {
            "base_hash" base_hash, "distribution_hash" distribution_hash, "flags" flags, "options" options,
            "_key" key,
        }
    };
    let flags = offset_of!(MemcachedSt, flags);
    layout.extend([
        ("offsetof(struct memcached_st, flags)".into(), flags),
        ("MEMCACHED_MAX_KEY".into(), KEY_SIZE),
        ("MEMCACHED_NI_MAXHOST".into(), HOST_SIZE),
        ("MEMCACHED_VERSION_STRING_LENGTH".into(), VERSION_SIZE),
        ("MEMCACHED_SERVER_MEMORY_ALLOCATION_FAILURE".into(), 48),
        ("MEMCACHED_TIMEOUT".into(), Return::TIMEOUT.0 as usize),
        ("MEMCACHED_E2BIG".into(), Return::E2BIG.0 as usize),
        ("MEMCACHED_BEHAVIOR_MAX".into(), 38),
        ("MEMCACHED_HASH_MAX".into(), 12),
        ("MEMCACHED_DISTRIBUTION_CONSISTENT_MAX".into(), 7),
        ("MEMCACHED_CALLBACK_DELETE_TRIGGER".into(), 8),
    ]);
    for (field, flag) in [
        ("auto_eject_hosts", Flag::AutoEjectHosts),
        ("reply", Flag::Reply),
        ("support_cas", Flag::SupportCas),
        ("tcp_nodelay", Flag::TcpNodelay),
        ("use_udp", Flag::UseUdp),
        ("is_fetching_version", Flag::IsFetchingVersion),
    ] {
        let mut flags = Flags([0; 2]);
        flags.set(flag, true);
        layout.push((format!("flag({field})"), u16::from_le_bytes(flags.0).into()));
    }
    layout
}

/// A program that prints the same of a header.
fn source(expected: &[(String, usize)]) -> String {
    let mut source = String::from(
        "#include <libmemcached/memcached.h>\n#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n\
         static struct memcached_st st;\n\
         static size_t bits(void) { unsigned short bits; memcpy(&bits, &st.flags, 2); return bits; }\n\
         #define flag(name) (memset(&st, 0, sizeof(st)), st.flags.name = 1, bits())\nint main(void) {\n",
    );
    for (name, _) in expected {
        writeln!(source, "  printf(\"{name} %zu\\n\", (size_t) ({name}));").expect("a text takes all");
    }
    source + "  return 0;\n}\n"
}

/// What it prints. `None`: there is no C compiler.
fn printed(name: &str, includes: &Path, expected: &[(String, usize)]) -> Option<String> {
    let directory = std::env::temp_dir().join(format!("larder-layout-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let (file, program) = (directory.join("layout.c"), directory.join("layout"));
    fs::write(&file, source(expected)).expect("a file");
    let compiled =
        Command::new("cc").arg("-I").arg(includes).arg("-o").arg(&program).arg(&file).output().ok()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(program).output().expect("it runs");
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn structs_are_as_the_headers_declare_them() {
    let expected = expected();
    let lines: String = expected.iter().map(|(name, number)| format!("{name} {number}\n")).collect();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let Some(printed_of_own) = printed("own", &own, &expected) else { return };
    assert_eq!(printed_of_own, lines);
    let libmemcached = Path::new("/usr/include");
    if libmemcached.join("libmemcached-1.0/struct/memcached.h").exists() {
        assert_eq!(printed("libmemcached", libmemcached, &expected).as_deref(), Some(&*lines));
    }
}
