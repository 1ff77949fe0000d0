//! The XML of a test, as in Brutis's brutis.dtd.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::Refusal;

/// A test.
#[derive(Debug, Default)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) description: String,
    /// To be run one after another.
    pub(super) jobs: Vec<Job>,
}

#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) attributes: Element,
    /// Names and values of `option`.
    pub(super) options: Vec<(String, String)>,
    pub(super) keys: Vec<Element>,
    /// With their text.
    pub(super) values: Vec<Element>,
    pub(super) operations: Vec<Element>,
}

/// An element's attributes and text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    attributes: Vec<(String, String)>,
    pub(super) text: String,
}

impl Element {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The elements that have a text of their own.
enum Open {
    Option(String),
    Value,
}

pub(super) fn read(path: &str, text: &str) -> Result<Test, Refusal> {
    let mut reader = Reader::from_str(text);
    let mut test = Test::default();
    let mut open = None;
    loop {
        let event = reader.read_event();
        let place = reader.buffer_position();
        let refuse = |reason: String| {
            let line = 1 + text.as_bytes().iter().take(place as usize).filter(|byte| **byte == b'\n').count();
            Refusal::File { path: path.into(), reason: format!("line {line}: {reason}") }
        };
        match event.map_err(|error| refuse(error.to_string()))? {
            Event::Eof => break,
            Event::Start(start) => open = test.begin(&start).map_err(refuse)?,
            Event::Empty(start) => {
                test.begin(&start).map_err(refuse)?;
            }
            Event::End(_) => open = None,
            Event::Text(words) => {
                let words = words.decode().map_err(|error| refuse(error.to_string()))?;
                test.add_text(open.as_ref(), &words);
            }
            Event::GeneralRef(reference) => {
                let character = resolve(&reference).ok_or_else(|| refuse("an unknown entity".into()))?;
                test.add_text(open.as_ref(), character.encode_utf8(&mut [0; 4]));
            }
            Event::CData(words) => {
                let words = words.decode().map_err(|error| refuse(error.to_string()))?;
                test.add_text(open.as_ref(), &words);
            }
            Event::Decl(_) | Event::DocType(_) | Event::Comment(_) | Event::PI(_) => {}
        }
    }
    match test.jobs.is_empty() {
        true => Err(Refusal::File { path: path.into(), reason: "there is no jobset".into() }),
        false => Ok(test),
    }
}

impl Test {
    fn begin(&mut self, start: &BytesStart<'_>) -> Result<Option<Open>, String> {
        let element = Element { attributes: attributes(start)?, text: String::new() };
        let name = start.name();
        match name.as_ref() {
            b"brutis" => return Ok(None),
            b"test" => {
                self.name = element.get("name").unwrap_or_default().into();
                self.description = element.get("desc").unwrap_or_default().into();
                return Ok(None);
            }
            b"jobset" => {
                self.jobs.push(Job { attributes: element, ..Job::default() });
                return Ok(None);
            }
            _ => {}
        }
        let job = self.jobs.last_mut().ok_or("what is outside of a jobset cannot be read")?;
        match name.as_ref() {
            b"libmemcache" | b"dataset" | b"operations" => {}
            b"option" => return Ok(Some(Open::Option(element.get("name").unwrap_or_default().into()))),
            b"key" => job.keys.push(element),
            b"value" => {
                job.values.push(element);
                return Ok(Some(Open::Value));
            }
            b"operation" => job.operations.push(element),
            other => return Err(format!("{}: there is no such element", String::from_utf8_lossy(other))),
        }
        Ok(None)
    }

    fn add_text(&mut self, open: Option<&Open>, words: &str) {
        let Some(job) = self.jobs.last_mut() else { return };
        match open {
            Some(Open::Option(name)) => job.options.push((name.clone(), words.trim().into())),
            Some(Open::Value) => {
                if let Some(value) = job.values.last_mut() {
                    value.text.push_str(words);
                }
            }
            None => {}
        }
    }
}

fn attributes(start: &BytesStart<'_>) -> Result<Vec<(String, String)>, String> {
    start
        .attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            let value = attribute.unescape_value().map_err(|error| error.to_string())?;
            Ok((name, value.into_owned()))
        })
        .collect()
}

/// The five entities of XML, and characters by their number.
fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Option<char> {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return Some(character);
    }
    let name: &[u8] = reference;
    match name {
        b"lt" => Some('<'),
        b"gt" => Some('>'),
        b"amp" => Some('&'),
        b"apos" => Some('\''),
        b"quot" => Some('"'),
        _ => None,
    }
}
