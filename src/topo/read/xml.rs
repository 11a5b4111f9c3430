//! What readers of XML share: parsing with positions, bounded in depth.

use super::{Flaw, Lines, Position};
use roxmltree::{Document, ParsingOptions};

/// Elements inside one another, at most: NCCL's own files have 8, hwloc's 20.
const DEPTH: usize = 128;

/// Elements of a file, at most: those of the largest machines have some ten thousands.
const ELEMENTS: usize = 1 << 19;

/// Nodes of a file, at most: with texts, comments and instructions between the elements.
const NODES: u32 = 4 * ELEMENTS as u32;

/// Attributes of an element, at most: NCCL's own reader takes 16.
const ATTRIBUTES: usize = 64;

/// Parses XML without entities of its own. A document type may be named; it is not fetched.
pub(crate) fn parse<'t>(text: &'t str, source: &str, lines: &Lines<'_>) -> Result<Document<'t>, Flaw> {
    let flaw = |at: Position, what: String, wanted: &str| Flaw {
        source_name: source.to_owned(),
        at,
        what,
        wanted: wanted.to_owned(),
    };
    if let Some(byte) = text.find("<!ENTITY") {
        let what = "an entity, by which a small file can be a large one".to_owned();
        return Err(flaw(lines.position(byte), what, "a file without entities"));
    }
    if let Some((byte, what)) = excess(text) {
        let wanted = "a file of a machine, which has fewer";
        return Err(flaw(lines.position(byte), what, wanted));
    }
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: NODES,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, options).map_err(|error| {
        let at = error.pos();
        let at = match error {
            // Told of the beginning.
            roxmltree::Error::UnexpectedEndOfStream | roxmltree::Error::UnclosedRootNode => {
                lines.position(text.len())
            }
            _ => Position {
                line: at.row,
                column: at.col,
            },
        };
        flaw(at, error.to_string(), "well-formed XML")
    })
}

/// Where there is more than a file of a machine has, and the parser takes time by the square of it. Looks at each byte once.
///
/// A tag ends at the latest where another begins: no quotation mark hides an element from the count.
fn excess(text: &str) -> Option<(usize, String)> {
    let (mut depth, mut count, mut at) = (0_usize, 0, 0);
    while let Some(start) = text[at..].find('<').map(|found| at + found) {
        let rest = &text[start..];
        let behind = |begin: &str, end: &str| {
            let found = rest[begin.len()..].find(end);
            found.map_or(text.len(), |found| start + begin.len() + found + end.len())
        };
        let apart = [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")];
        if let Some((begin, end)) = apart.iter().find(|(begin, _)| rest.starts_with(begin)) {
            at = behind(begin, end);
            continue;
        }
        if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
            at = start + 2;
            continue;
        }
        let tag = Tag::of(&rest.as_bytes()[1..]);
        at = start + 1 + tag.length;
        if rest.starts_with("<!") {
            if tag.cut {
                return Some((start, "a document type with declarations".to_owned()));
            }
            continue;
        }
        count += 1;
        if count > ELEMENTS {
            return Some((start, format!("more than {ELEMENTS} elements")));
        }
        depth += usize::from(!tag.empty);
        if depth > DEPTH {
            return Some((start, format!("more than {DEPTH} elements inside one another")));
        }
        if tag.attributes > ATTRIBUTES {
            return Some((start, format!("an element of {} attributes", tag.attributes)));
        }
        if tag.namespace {
            return Some((start, "an element with a namespace".to_owned()));
        }
    }
    None
}

/// What is behind a `<`, up to the `>` that ends it.
struct Tag {
    length: usize,
    /// It ends in `/>`.
    empty: bool,
    /// Another `<` came before its end.
    cut: bool,
    attributes: usize,
    namespace: bool,
}

impl Tag {
    fn of(bytes: &[u8]) -> Self {
        let mut tag = Tag {
            length: bytes.len(),
            empty: false,
            cut: false,
            attributes: 0,
            namespace: false,
        };
        let mut quote = None;
        for (at, &byte) in bytes.iter().enumerate() {
            match (quote, byte) {
                (_, b'<') => {
                    (tag.length, tag.cut) = (at, true);
                    break;
                }
                (Some(open), _) if open == byte => quote = None,
                (Some(_), _) => {}
                (None, b'"' | b'\'') => quote = Some(byte),
                (None, b'=') => tag.attributes += 1,
                (None, b'x') if bytes[at..].starts_with(b"xmlns") => tag.namespace = true,
                (None, b'>') => {
                    (tag.length, tag.empty) = (at, bytes[..at].ends_with(b"/"));
                    break;
                }
                (None, _) => {}
            }
        }
        tag
    }
}

/// Whether the first element of a text has one of these names.
pub(super) fn begins(text: &str, names: &[&str]) -> bool {
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let Some(tag) = rest.strip_prefix('<') else {
            return false;
        };
        let end = match tag.get(..1) {
            Some("!") if tag.starts_with("!--") => tag.find("-->").map(|at| at + 3),
            Some("!" | "?") => {
                // A document type may have a part in brackets, with tags of its own.
                let end = tag.find('>').map(|at| at + 1);
                let inner = end.is_some_and(|end| tag[..end].contains('['));
                if inner {
                    tag.find("]>").map(|at| at + 2)
                } else {
                    end
                }
            }
            _ => {
                let name = tag
                    .split(|c: char| c.is_whitespace() || c == '>' || c == '/')
                    .next();
                return name.is_some_and(|name| names.contains(&name));
            }
        };
        match end.and_then(|end| tag.get(end..)) {
            Some(more) => rest = more,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        match parse(text, "t", &Lines::new(text)) {
            Ok(document) => format!("{} nodes", document.descendants().count()),
            Err(flaw) => flaw.to_string(),
        }
    }

    #[test]
    fn depth_is_that_of_elements() {
        let nested = |begin: &str, depth: usize| begin.repeat(depth) + &"</a>".repeat(depth);
        let deep = "more than 128 elements inside one another; wanted a file of a machine, which has fewer";
        for begin in [
            "<a>",
            "<a b=\"/>\">",
            "<a b='/'>",
            "<a b='\">'>",
            "<a><!--</a>-->",
            "<a><![CDATA[</a>]]>",
            "<a><?b </a>?>",
        ] {
            assert!(told(&nested(begin, DEPTH)).ends_with(" nodes"), "{begin}");
            let wanted = format!("t:1:{}: {deep}", DEPTH * begin.len() + 1);
            assert_eq!(told(&nested(begin, DEPTH + 1)), wanted, "{begin}");
        }
        for side in [
            "<a/>",
            "<!--<a>-->",
            "<![CDATA[<a>]]>",
            "<?b <a>?>",
            "<a b=\"x>\"/>",
            "<a></a>",
        ] {
            assert!(
                told(&format!("<a>{}</a>", side.repeat(300))).ends_with(" nodes"),
                "{side}"
            );
        }
    }

    #[test]
    fn what_would_take_long_is_refused() {
        let attributes: String = (0..65).map(|at| format!(" a{at}=\"=\"")).collect();
        let many = "an element of 65 attributes; wanted a file of a machine, which has fewer";
        assert_eq!(
            told(&format!("<a>\n<b{attributes}/></a>")),
            format!("t:2:1: {many}")
        );
        assert!(told(&format!("<a{}/>", attributes.replace(" a64=\"=\"", ""))).ends_with(" nodes"));
        assert!(told("<a xmlns:b=\"c\"/>").starts_with("t:1:1: an element with a namespace"));
        assert!(told("<a b=\"xmlns\"/>").ends_with(" nodes"));
        assert!(told("<!DOCTYPE a [<!ELEMENT a ANY>]><a/>").starts_with("t:1:1: a document type with decl"));
        assert!(told("<!DOCTYPE a SYSTEM \"<!--\"><a/>").starts_with("t:1:1: a document type with decl"));
        assert!(told("<!DOCTYPE a SYSTEM \"a.dtd\"><a/>").ends_with(" nodes"));
        let many = "<a>".to_owned() + &"<b/>".repeat(ELEMENTS) + "</a>";
        assert!(told(&many).starts_with("t:1:2097152: more than 524288 elements"));
        let many = "<a>".to_owned() + &"<?b?>".repeat(NODES as usize) + "</a>";
        assert!(told(&many).contains("nodes limit reached"), "{}", told(&many));
        // None of them is closed.
        assert!(told(&"<a b=\"".repeat(50_000)).contains("more than 128"));
        assert!(told(&"</a".repeat(50_000)).starts_with("t:1:"));
    }
}
