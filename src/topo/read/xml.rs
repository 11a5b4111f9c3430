//! What readers of XML share: parsing with positions, bounded in depth.

use super::{Flaw, Lines, Position};
use roxmltree::{Document, ParsingOptions};

/// Elements inside one another, at most: NCCL's own files have 8, hwloc's 20.
const DEPTH: usize = 256;

/// Parses XML without entities of its own. A document type may be named; it is not fetched.
pub(super) fn parse<'t>(text: &'t str, source: &str, lines: &Lines<'_>) -> Result<Document<'t>, Flaw> {
    let flaw = |at: Position, what: String, wanted: &str| Flaw {
        source_name: source.to_owned(),
        at,
        what,
        wanted: wanted.to_owned(),
    };
    if let Some(byte) = too_deep(text) {
        let what = format!("more than {DEPTH} elements inside one another");
        return Err(flaw(
            lines.position(byte),
            what,
            "a file of a machine, which has fewer",
        ));
    }
    if let Some(byte) = text.find("<!ENTITY") {
        let what = "an entity, by which a small file can be a large one".to_owned();
        return Err(flaw(lines.position(byte), what, "a file without entities"));
    }
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, options).map_err(|error| {
        let at = error.pos();
        flaw(
            Position {
                line: at.row,
                column: at.col,
            },
            error.to_string(),
            "well-formed XML",
        )
    })
}

/// Where tags are open deeper than [`DEPTH`]. What is not well-formed is left to the parser.
fn too_deep(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(start) = text[at..].find('<').map(|found| at + found) {
        let tag = &text[start..];
        let behind = |mark: &str| tag.find(mark).map(|found| start + found + mark.len());
        at = if tag.starts_with("<!--") {
            behind("-->")?
        } else if tag.starts_with("<![CDATA[") {
            behind("]]>")?
        } else if tag.starts_with("<?") {
            behind("?>")?
        } else if tag.starts_with("<!") {
            start + 2 // a document type, whose parts begin so as well
        } else if tag.starts_with("</") {
            depth = depth.saturating_sub(1);
            behind(">")?
        } else {
            let end = start + end_of_tag(tag)?;
            if !text[..end].ends_with('/') {
                depth += 1;
            }
            if depth > DEPTH {
                return Some(start);
            }
            end + 1
        };
    }
    None
}

/// Where the > of a tag is, outside of quotation marks.
fn end_of_tag(tag: &str) -> Option<usize> {
    let mut quoted = None;
    tag.bytes().position(|byte| {
        match quoted {
            Some(mark) if byte == mark => quoted = None,
            None if matches!(byte, b'"' | b'\'') => quoted = Some(byte),
            _ => {}
        }
        quoted.is_none() && byte == b'>'
    })
}

/// Whether the first element of a text has one of these names.
pub(super) fn begins(text: &str, names: &[&str]) -> bool {
    let mut rest = text.trim_start_matches('\u{feff}');
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
