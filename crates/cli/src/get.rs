//! `larder get`: values for people, with their flags, size and CAS value.

use std::io::{self, IsTerminal as _};

use serde_json::{Map, Value, json};

use crate::target::{Target, failure_about};
use crate::troubles::Troubles;
use crate::ttl::Ttl;
use crate::{Failure, output};

/// Print the values of keys
///
/// Prints each value and a line feed; on a terminal, a value that is not text with escapes. Exit code 1: a key was not
/// found.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Print a line before each value: key, client flags, bytes, CAS value
    #[arg(short, long)]
    long: bool,
    /// Print an array of objects; values that are not text are in base64
    #[arg(long)]
    json: bool,
    /// Set a new expiry
    #[arg(long, value_name = "TIME")]
    touch: Option<Ttl>,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut client = args.target.client()?;
    let mut troubles = Troubles::of("get");
    let mut objects = Vec::new();
    let is_terminal = io::stdout().is_terminal();
    output::write(|out| {
        for key in &args.keys {
            let found = match args.touch {
                // The reply to a touch has no CAS value.
                Some(ttl) => client.get_and_touch(key, ttl.exptime()),
                None => client.gets(key),
            };
            let item = match found {
                Ok(Some(item)) => item,
                Ok(None) => {
                    troubles.not_found(key);
                    continue;
                }
                Err(error) => {
                    troubles.add(failure_about(&client, key, &error));
                    continue;
                }
            };
            if args.json {
                let mut object = Map::new();
                output::insert_bytes(&mut object, "key", key.as_bytes());
                output::insert_bytes(&mut object, "value", &item.value);
                object.insert("flags".into(), json!(item.client_flags));
                object.insert("bytes".into(), json!(item.value.len()));
                object.insert("cas".into(), json!(item.cas));
                objects.push(Value::Object(object));
                continue;
            }
            if args.long {
                let cas = item.cas.map_or_else(|| "-".to_owned(), |cas| cas.to_string());
                writeln!(out, "{key} {} {} {cas}", item.client_flags, item.value.len())
                    .map_err(Failure::of_output)?;
            }
            let shown = if is_terminal { output::readable(&item.value).into_bytes() } else { item.value };
            out.write_all(&shown).and_then(|()| out.write_all(b"\n")).map_err(Failure::of_output)?;
        }
        Ok(())
    })?;
    if args.json {
        output::write_json(&Value::Array(objects))?;
    }
    troubles.end()
}
