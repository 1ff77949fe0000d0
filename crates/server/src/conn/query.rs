//! The keys of a query over HTTP (`GET /v1/items?key=a&key=b`). The session keeps them apart from the input, for as
//! long as their replies are sent: a list of 100 large values takes many rounds.

use larder_protocol::http::{self, HttpForm, HttpRefusal};
use larder_protocol::{Error, Form, KEY_BYTES_MAX, Key, Keys, Reply};

use crate::conn::session::CloseReason;
use crate::exec::{Done, Executor};
use crate::heap;
use crate::namespaces::Right;

/// The keys of a query whose reply has begun.
pub(crate) struct Query {
    /// No longer than a head, which a connection may keep at any time.
    parameters: Vec<u8>,
    /// Parameters before this are looked up.
    from: usize,
    form: HttpForm<'static>,
}

impl Query {
    /// Begins the reply. Errors: there is no memory for the keys, and the client has been told.
    pub(crate) fn begin(
        executor: &mut Executor<'_, '_, '_, '_>,
        keys: Keys<'_>,
        form: &HttpForm<'_>,
    ) -> Result<Self, Done> {
        // The reply to a list has no place for an error.
        if executor.guards.are_named() {
            for key in keys {
                let mut buffer = [0; KEY_BYTES_MAX];
                if let Err(error) = executor.admit(key.bytes(&mut buffer), Right::Read) {
                    return Err(executor.answer(&Form::Http(*form), &Reply::Error(error)));
                }
            }
        }
        let form = form.without_request();
        let Some(parameters) = heap::copy(keys.rest()) else {
            return Err(
                executor.answer(&Form::Http(form), &Reply::Error(Error::Http(HttpRefusal::OutOfMemory)))
            );
        };
        http::begin_list(&form, executor.out);
        Ok(Self { parameters, from: 0, form })
    }

    /// Looks up keys until the connection has used its share of the round ([`Done::Begun`]), or a key has to be waited
    /// for. Else all are done.
    pub(crate) fn look_up(&mut self, executor: &mut Executor<'_, '_, '_, '_>) -> Done {
        let form = Form::Http(self.form);
        let mut keys = Keys::query(&self.parameters[self.from..]);
        while let Some(key) = keys.next() {
            let mut buffer = [0; KEY_BYTES_MAX];
            if let Some(key) = Key::new(key.bytes(&mut buffer)) {
                let prepared = executor.prepared(key.written(), None);
                let begin = executor.out.len_bytes();
                // Refused since the list began: as if there were no such item.
                if executor.admit(key.written(), Right::Read).is_ok() {
                    match executor.get(key, prepared, &form) {
                        wait @ Done::Wait(_) => return wait,
                        // That the list has no end says that it is not complete.
                        Done::Failed => return Done::Close(CloseReason::Error),
                        _ => {}
                    }
                } else {
                    form.encode(&Reply::Miss, executor.out);
                }
                executor.depend(begin, &form, false);
                executor.cx.recorder.key(key.written());
            }
            self.from = self.parameters.len() - keys.rest().len();
            if executor.has_used_its_share() && !keys.rest().is_empty() {
                return Done::Begun;
            }
        }
        let done = executor.answer(&form, &Reply::End);
        executor.end_request();
        done
    }
}
