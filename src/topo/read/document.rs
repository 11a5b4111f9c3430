//! [`Value`]: what a JSON or YAML text holds, with the place of each part. JSON may have `//` and `/* */` comments.

use super::{Flaw, page::Page};
use saphyr_parser::{Event, Parser};

/// Values inside one another, at most.
const DEPTH: usize = 64;

/// Values of a text, at most: a rank table of 100,000 ranks has some 1,000,000.
const VALUES: usize = 1 << 21;

/// A value, and the byte at which it begins.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) at: usize,
    pub(super) data: Data,
}

/// What a value is. Numbers, truths and null are words, too: formats disagree about which are in quotation marks.
#[derive(Debug)]
pub(super) enum Data {
    Word(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    /// What a map has under a key; the last, if the key is there twice.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        match &self.data {
            Data::Map(all) => all
                .iter()
                .rev()
                .find(|(known, _)| known == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The word under a key.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_word()
    }

    /// A number under a key, as it is or in quotation marks.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.word(key)?
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
    }

    /// The list under a key; nothing where there is none.
    pub(super) fn list(&self, key: &str) -> &[Value] {
        self.get(key).map_or(&[], Value::as_list)
    }

    /// The values of a list; nothing of another.
    pub(super) fn as_list(&self) -> &[Value] {
        match &self.data {
            Data::List(list) => list,
            _ => &[],
        }
    }

    pub(super) fn as_word(&self) -> Option<&str> {
        match &self.data {
            Data::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Keys and values of a map; nothing of another.
    pub(super) fn entries(&self) -> &[(String, Value)] {
        match &self.data {
            Data::Map(all) => all,
            _ => &[],
        }
    }
}

/// Tells the keys of a map that are none of these.
pub(super) fn tell_unknown(page: &mut Page, value: &Value, known: &[&str]) {
    for (key, value) in value.entries() {
        if !known.contains(&key.as_str()) {
            page.tell(value.at, format!("\"{key}\" is unknown: left out"));
        }
    }
}

/// What is being built: open lists and maps, the outermost first.
struct Builder {
    open: Vec<(Value, Option<(usize, String)>)>,
    done: Option<Value>,
    count: usize,
}

impl Builder {
    fn new() -> Self {
        Builder {
            open: Vec::new(),
            done: None,
            count: 0,
        }
    }

    fn begin(&mut self, page: &Page, at: usize, data: Data) -> Result<(), Flaw> {
        if self.open.len() >= DEPTH {
            let what = format!("more than {DEPTH} values inside one another");
            return Err(page.flaw(at, what, "a file of a machine, which has fewer"));
        }
        self.open.push((Value { at, data }, None));
        Ok(())
    }

    fn end(&mut self, page: &Page, at: usize) -> Result<(), Flaw> {
        match self.open.pop() {
            Some((value, None)) => self.put(page, value),
            Some((_, Some(_))) => Err(page.flaw(at, "the end of a map", "a value for the key before it")),
            None => Err(page.flaw(at, "the end of nothing", "a value")),
        }
    }

    fn word(&mut self, page: &Page, at: usize, word: String) -> Result<(), Flaw> {
        let data = Data::Word(word);
        self.put(page, Value { at, data })
    }

    /// Puts a whole value where it belongs: a word in a map is a key, or the value of one.
    fn put(&mut self, page: &Page, value: Value) -> Result<(), Flaw> {
        self.count += 1;
        if self.count > VALUES {
            let what = format!("more than {VALUES} keys and values");
            return Err(page.flaw(value.at, what, "a file of a machine, which has fewer"));
        }
        match self.open.last_mut() {
            None if self.done.is_none() => self.done = Some(value),
            None => return Err(page.flaw(value.at, "a second value", "the end of the text")),
            Some((
                Value {
                    data: Data::List(list),
                    ..
                },
                _,
            )) => list.push(value),
            Some((
                Value {
                    data: Data::Map(map), ..
                },
                key,
            )) => match (key.take(), value) {
                (Some((_, name)), value) => map.push((name, value)),
                (
                    None,
                    Value {
                        at,
                        data: Data::Word(word),
                    },
                ) => *key = Some((at, word)),
                (None, value) => return Err(page.flaw(value.at, "a key that is no word", "a word")),
            },
            Some(_) => {}
        }
        Ok(())
    }

    fn in_map(&self) -> bool {
        matches!(
            self.open.last(),
            Some((
                Value {
                    data: Data::Map(_),
                    ..
                },
                _
            ))
        )
    }

    fn finish(self, page: &Page) -> Result<Value, Flaw> {
        let end = page.text.trim_end().len();
        match (self.done, self.open.is_empty()) {
            (Some(value), true) => Ok(value),
            _ => Err(page.flaw(end, "the end of the text", "what is still open to be closed")),
        }
    }
}

/// Reads JSON, with comments.
pub(super) fn json(page: &Page) -> Result<Value, Flaw> {
    let text = page.text;
    let mut builder = Builder::new();
    let mut at = 0;
    // What may come: a value or a key; after one, only a comma, a colon or an end.
    let mut after = false;
    let mut comma = false;
    loop {
        at = blank(page, at)?;
        let Some(&byte) = text.as_bytes().get(at) else {
            return builder.finish(page);
        };
        if builder.done.is_some() {
            return Err(page.flaw(at, "more after the value", "the end of the text"));
        }
        let keyed = builder.in_map() && builder.open.last().is_some_and(|(_, key)| key.is_some());
        match byte {
            b'{' | b'[' if !after => {
                if builder.in_map() && !keyed {
                    return Err(page.flaw(at, "a key that is no word", "a word in quotation marks"));
                }
                let data = if byte == b'{' {
                    Data::Map(Vec::new())
                } else {
                    Data::List(Vec::new())
                };
                builder.begin(page, at, data)?;
                comma = false;
                at += 1;
            }
            b'}' | b']' if !builder.open.is_empty() => {
                if builder.in_map() != (byte == b'}') || keyed || comma {
                    return Err(page.flaw(at, format!("'{}' here", char::from(byte)), "a value"));
                }
                builder.end(page, at)?;
                after = true;
                at += 1;
            }
            b',' if after && !keyed => {
                (after, comma) = (false, true);
                at += 1;
            }
            b':' if after && keyed => {
                (after, comma) = (false, false);
                at += 1;
            }
            b'"' if !after => {
                let (word, end) = string(page, at)?;
                builder.word(page, at, word)?;
                (after, comma) = (true, false);
                at = end;
            }
            _ if !after && (keyed || !builder.in_map()) => {
                let end = text[at..].find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
                let end = end.map_or(text.len(), |length| at + length);
                let word = &text[at..end];
                if !(["true", "false", "null"].contains(&word) || word.parse::<f64>().is_ok()) {
                    return Err(page.flaw(at, "no value of JSON", "a value"));
                }
                builder.word(page, at, word.to_owned())?;
                (after, comma) = (true, false);
                at = end;
            }
            _ => {
                let wanted = match (after, keyed) {
                    (true, true) => "a colon",
                    (true, false) => "a comma, or an end",
                    (false, _) => "a key in quotation marks",
                };
                return Err(page.flaw(at, "something else", wanted));
            }
        }
    }
}

/// Behind blanks and comments.
fn blank(page: &Page, mut at: usize) -> Result<usize, Flaw> {
    let text = page.text;
    loop {
        let rest = &text[at..];
        let start = at + (rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len());
        let rest = &text[start..];
        at = if rest.starts_with("//") {
            rest.find('\n').map_or(text.len(), |end| start + end)
        } else if rest.starts_with("/*") {
            let end = rest.find("*/").map(|end| start + end + 2);
            end.ok_or_else(|| page.flaw(start, "a comment that does not end", "*/"))?
        } else {
            return Ok(start);
        };
    }
}

/// The string that begins at a quotation mark, and the byte behind it.
fn string(page: &Page, start: usize) -> Result<(String, usize), Flaw> {
    let text = page.text;
    let mut at = start + 1;
    loop {
        match text.as_bytes().get(at) {
            Some(b'"') => break,
            Some(b'\\') => at += 2,
            Some(b'\n') | None => {
                return Err(page.flaw(start, "a string that does not end in its line", "\""));
            }
            Some(_) => at += 1,
        }
    }
    let raw = text.get(start..=at);
    let word = raw.and_then(|raw| serde_json::from_str(raw).ok());
    let word = word.ok_or_else(|| page.flaw(start, "a string with bad escapes", "one of JSON"))?;
    Ok((word, at + 1))
}

/// Reads the first document of YAML; without aliases and beginnings of tags, by which a small file can be a large one.
pub(super) fn yaml(page: &Page) -> Result<Value, Flaw> {
    let text = page.text;
    let begins_line = |at: usize| at == 0 || matches!(text.as_bytes()[at - 1], b'\n' | b'\r');
    let mut tags = text.match_indices("%TAG").map(|(at, _)| at);
    if let Some(at) = tags.find(|&at| begins_line(at)) {
        return Err(page.flaw(at, "a beginning of tags", "a file without %TAG"));
    }
    // The parser counts characters.
    let bytes: Option<Vec<usize>> =
        (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
    let byte = |index: usize| match &bytes {
        Some(bytes) => bytes.get(index).copied().unwrap_or(text.len()),
        None => index.min(text.len()),
    };
    let mut builder = Builder::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            page.flaw(
                byte(error.marker().index()),
                error.info().to_owned(),
                "well-formed YAML",
            )
        })?;
        let at = byte(span.start.index());
        match event {
            Event::Scalar(word, ..) => {
                let word = word.into_owned();
                builder.word(page, at, word)?;
            }
            Event::SequenceStart(..) => builder.begin(page, at, Data::List(Vec::new()))?,
            Event::MappingStart(..) => builder.begin(page, at, Data::Map(Vec::new()))?,
            Event::SequenceEnd | Event::MappingEnd => builder.end(page, at)?,
            Event::Alias(_) => return Err(page.flaw(at, "an alias", "a file without aliases")),
            Event::DocumentEnd | Event::StreamEnd => break,
            _ => {}
        }
    }
    builder.finish(page)
}

/// Whether a text may be JSON, perhaps behind comments, that has one of these keys.
pub(super) fn is_json_with(text: &str, keys: &[&str]) -> bool {
    let text = text.trim_start();
    (text.starts_with(['{', '[']) || text.starts_with("//") || text.starts_with("/*"))
        && keys.iter().any(|key| text.contains(&format!("\"{key}\"")))
}

/// Whether a text has a line that begins with one of these keys of YAML.
pub(super) fn is_yaml_with(text: &str, keys: &[&str]) -> bool {
    let starts = |line: &str| {
        keys.iter().any(|key| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with(':'))
        })
    };
    !text.trim_start().starts_with(['{', '<', '[']) && text.lines().any(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, read: fn(&Page) -> Result<Value, Flaw>) -> String {
        match read(&Page::new(text, "t")) {
            Ok(value) => format!("{value:?}"),
            Err(flaw) => flaw.to_string(),
        }
    }

    #[test]
    fn json_has_comments_and_places() {
        let text = "// first\n{ /* a */ \"a\": [1, \"x\\n\", true], // b\n\"b\": {}, \"a\" : -1.5e3 }\n";
        let page = Page::new(text, "t");
        let value = json(&page).unwrap();
        assert_eq!(value.number("a"), Some(-1500.0));
        let Data::Map(map) = &value.data else {
            panic!("{value:?}")
        };
        let Data::List(list) = &map[0].1.data else {
            panic!("{value:?}")
        };
        assert_eq!(
            list.iter()
                .map(|word| word.as_word().unwrap())
                .collect::<Vec<_>>(),
            ["1", "x\n", "true"]
        );
        assert_eq!(page.position(list[1].at).to_string(), "2:20");
        for (text, flaw) in [
            ("{\"a\": 1,}", "t:1:9: '}' here; wanted a value"),
            ("{\"a\" 1}", "t:1:6: something else; wanted a colon"),
            ("{\"a\": }", "t:1:7: '}' here; wanted a value"),
            ("{a: 1}", "t:1:2: something else; wanted a key in quotation marks"),
            ("[1 2]", "t:1:4: something else; wanted a comma, or an end"),
            ("[1]]", "t:1:4: more after the value; wanted the end of the text"),
            ("[1}", "t:1:3: '}' here; wanted a value"),
            (
                "{[]: 1}",
                "t:1:2: a key that is no word; wanted a word in quotation marks",
            ),
            (
                "[\n1",
                "t:2:2: the end of the text; wanted what is still open to be closed",
            ),
            (
                "[\"a\nb\"]",
                "t:1:2: a string that does not end in its line; wanted \"",
            ),
            ("[] /* x", "t:1:4: a comment that does not end; wanted */"),
            ("[,1]", "t:1:2: no value of JSON; wanted a value"),
            (
                "",
                "t:1:1: the end of the text; wanted what is still open to be closed",
            ),
        ] {
            assert_eq!(told(text, json), flaw, "{text}");
        }
        let many = told(&format!("[{}0]", "0,".repeat(VALUES)), json);
        assert!(
            many.starts_with("t:1:4194306: more than 2097152 keys and values"),
            "{many}"
        );
        let deep = told(&"[".repeat(300_000), json);
        assert_eq!(
            deep,
            "t:1:65: more than 64 values inside one another; wanted a file of a machine, which has fewer"
        );
    }

    #[test]
    fn yaml_has_places_and_no_aliases() {
        let text = "# é\na:\n- x\n- {b: 1, c: \"é\", d: [2]}\nb: 'y'\n";
        let page = Page::new(text, "t");
        let value = yaml(&page).unwrap();
        let map = &value.list("a")[1];
        assert_eq!(
            (map.number("b"), map.word("c"), value.word("b")),
            (Some(1.0), Some("é"), Some("y"))
        );
        assert_eq!(page.position(value.get("b").unwrap().at).to_string(), "5:4");
        assert!(told("a: &x [1]\nb: *x\n", yaml).contains(":2:4: an alias"));
        let tag = told("# %TAG\n%TAG !e! tag:x\n---\na: !e!b 1\n", yaml);
        assert!(tag.contains(":2:1: a beginning of tags"), "{tag}");
        assert!(told(&"[".repeat(100), yaml).contains("more than 64"));
        assert!(told(&"[".repeat(300_000), yaml).contains("recursion limit"));
        assert!(told("a: [1\n", yaml).starts_with("t:"));
    }
}
