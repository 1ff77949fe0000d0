//! libmemcachedutil, but for pools.

use super::{behaviors, clients, query, sasl, servers, statistics, versions};
use crate::abi::{Chars, Memc, Out, Return, export};

export! {
    fn libmemcached_util_ping(host: Chars, port: u16, error: Out<Return>) -> bool {
        ping(&host, port, None, error)
    }

    fn libmemcached_util_ping2(
        host: Chars, port: u16, user: Chars, password: Chars, error: Out<Return>,
    ) -> bool {
        ping(&host, port, login(&user, &password), error)
    }

    fn libmemcached_util_flush(host: Chars, port: u16, error: Out<Return>) -> bool {
        with_client(&host, port, None, error, |memc| match query(memc) {
            Some((mut session, options)) => session.core.flush_all(&options, 0),
            None => Return::FAILURE,
        })
    }

    fn libmemcached_util_getpid(host: Chars, port: u16, error: Out<Return>) -> i32 {
        pid(&host, port, None, error)
    }

    fn libmemcached_util_getpid2(
        host: Chars, port: u16, user: Chars, password: Chars, error: Out<Return>,
    ) -> i32 {
        pid(&host, port, login(&user, &password), error)
    }

    fn libmemcached_util_version_check(memc: Memc, major: u8, minor: u8, micro: u8) -> bool {
        let wanted = [major, minor, micro];
        let is_new = |release: [u8; 3]| release[0] != u8::MAX && release >= wanted;
        versions::fetch(&memc).is_success()
            && memc.read(|core| core.instances.iter().all(|server| is_new(server.release))).unwrap_or(false)
    }
}

type Names<'a> = (&'a [u8], &'a [u8]);

fn login<'a>(user: &'a Chars, password: &'a Chars) -> Option<Names<'a>> {
    let user = user.text()?.to_bytes();
    Some((user, password.text().map_or(b"", |password| password.to_bytes())))
}

fn ping(host: &Chars, port: u16, login: Option<Names<'_>>, error: Out<Return>) -> bool {
    with_client(host, port, login, error, versions::fetch)
}

fn pid(host: &Chars, port: u16, login: Option<Names<'_>>, error: Out<Return>) -> i32 {
    let mut pid = -1;
    with_client(host, port, login, error, |memc| match statistics::fetch(memc, &Chars::null()) {
        Ok((stats, code)) => {
            pid = stats.first().map_or(-1, |stat| stat.pid);
            if code.is_success() && pid == -1 { Return::UNKNOWN_STAT_KEY } else { code }
        }
        Err(code) => code,
    });
    pid
}

/// Calls it with a client of one server.
fn with_client(
    host: &Chars,
    port: u16,
    login: Option<Names<'_>>,
    error: Out<Return>,
    call: impl FnOnce(&Memc) -> Return,
) -> bool {
    let memc = Memc::at(Memc::null().create());
    let mut code = behaviors::set(&memc, behaviors::Behavior::CONNECT_TIMEOUT, CONNECT_TIMEOUT);
    if let Some((user, password)) = login {
        code = sasl::set(&memc, user, password);
    }
    if code.is_success() {
        code = servers::add_inet(&memc, host, port, 0);
    }
    if code.is_success() {
        code = call(&memc);
    }
    if code == Return::SOME_ERRORS {
        // The server's own error says more.
        let told = memc.read(|core| core.instances.first().and_then(|server| server.errors.code()));
        code = told.flatten().unwrap_or(code);
    }
    clients::free(&memc);
    error.set(code);
    code.is_success()
}

/// In milliseconds.
const CONNECT_TIMEOUT: u64 = 400_000;
