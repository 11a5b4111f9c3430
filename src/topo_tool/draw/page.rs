//! A picture as shapes and labels, and its SVG.
//!
//! All letters are as wide: a label's width is known without the font that a viewer has. A picture brings its own light ground, so
//! that it is the same in light and dark viewers, and neither scripts nor fonts.

use svg::node::{Node, Text, element::Element};

/// A rectangle, in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rect {
    pub(super) fn centre(&self) -> f64 {
        self.x + self.width / 2.0
    }

    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// What is left if so much of each side is taken.
    pub(super) fn inner(&self, by: f64) -> Rect {
        Rect {
            x: self.x + by,
            y: self.y + by,
            width: self.width - 2.0 * by,
            height: self.height - 2.0 * by,
        }
    }
}

/// Words on a picture: where they are, and in what they have to stay.
#[derive(Debug, Clone)]
pub(super) struct Label {
    pub(super) text: String,
    pub(super) at: Rect,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests hold labels against it"))]
    pub(super) within: Option<Rect>,
    letters: Letters,
}

impl Label {
    fn element(&self) -> Element {
        let letters = &self.letters;
        let mut shape = Shape::new("text")
            .number("x", self.at.x)
            .number("y", self.at.y + letters.size * 0.95)
            .number("font-size", letters.size)
            .word("fill", letters.colour);
        if letters.is_bold {
            shape = shape.word("font-weight", "bold");
        }
        if !self.text.is_ascii() {
            // Other letters are as wide as fonts like them; this makes them as wide as was reckoned.
            shape = shape
                .number("textLength", self.at.width)
                .word("lengthAdjust", "spacingAndGlyphs");
        }
        shape.0.append(Text::new(self.text.as_str()));
        shape.0
    }
}

/// How words look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letters {
    pub(super) size: f64,
    pub(super) is_bold: bool,
    pub(super) colour: &'static str,
}

impl Letters {
    pub(super) const PLAIN: Letters = Letters {
        size: 11.0,
        is_bold: false,
        colour: INK,
    };
    pub(super) const BOLD: Letters = Letters {
        is_bold: true,
        ..Letters::PLAIN
    };
    pub(super) const FAINT: Letters = Letters {
        colour: "#4a5361",
        ..Letters::PLAIN
    };
    pub(super) const TITLE: Letters = Letters {
        size: 15.0,
        ..Letters::BOLD
    };

    /// Pixels that a text is wide.
    pub(super) fn width(&self, text: &str) -> f64 {
        text.chars().map(em).sum::<f64>() * self.size
    }

    /// Pixels from a line to the next.
    pub(super) fn height(&self) -> f64 {
        (self.size * 1.25).ceil()
    }

    /// A text, or how it begins if it is wider than that.
    pub(super) fn cut(&self, text: &str, most: f64) -> String {
        if self.width(text) <= most {
            return text.to_owned();
        }
        let mut left = most - em('…') * self.size;
        let fits = |letter: &char| {
            left -= em(*letter) * self.size;
            left >= 0.0
        };
        let begin: String = text.chars().take_while(fits).collect();
        begin + "…"
    }

    /// A text in lines that are no wider than that, broken at spaces where there are any.
    pub(super) fn wrap(&self, text: &str, most: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split(' ') {
            match lines.last_mut() {
                Some(line) if self.width(line) + self.width(word) + em(' ') * self.size <= most => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(self.cut(word, most)),
            }
        }
        lines
    }
}

/// The part of its height that a letter is wide: of the usual fonts with letters of one width, and the most of others.
fn em(letter: char) -> f64 {
    match letter {
        ' '..='~' | '×' | '…' => 0.602,
        _ => 1.0,
    }
}

/// Words of a file, without what is no letter: what XML forbids, moves cursors or turns the direction of writing.
pub(super) fn clean(text: &str) -> String {
    let strange = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{ffff}')
    };
    text.replace(strange, "\u{fffd}")
}

const FONTS: &str = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace";
const INK: &str = "#1b1f24";
const GROUND: &str = "#ffffff";

/// A picture that grows.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) width: f64,
    pub(super) height: f64,
    shapes: Vec<Element>,
    pub(super) labels: Vec<Label>,
}

impl Page {
    /// An empty one of a width, and so high.
    pub(super) fn new(width: f64, height: f64) -> Page {
        Page {
            width,
            height,
            ..Page::default()
        }
    }

    /// Adds a shape, with words that viewers show where they are pointed at it.
    pub(super) fn add(&mut self, shape: Shape, about: &str) {
        let mut element = shape.0;
        if !about.is_empty() {
            let mut title = Element::new("title");
            title.append(Text::new(clean(about)));
            element.append(title);
        }
        self.shapes.push(element);
    }

    /// Adds words whose line begins at a place.
    pub(super) fn label(&mut self, text: &str, at: (f64, f64), letters: Letters, within: Option<Rect>) {
        let width = letters.width(text);
        let at = Rect {
            x: at.0,
            y: at.1,
            width,
            height: letters.height(),
        };
        self.labels.push(Label {
            text: text.to_owned(),
            at,
            within,
            letters,
        });
    }

    /// Adds words in the middle of a place.
    pub(super) fn centred(
        &mut self,
        text: &str,
        middle: f64,
        top: f64,
        letters: Letters,
        within: Option<Rect>,
    ) {
        let x = middle - letters.width(text) / 2.0;
        self.label(text, (x, top), letters, within);
    }

    /// The whole, and what it is in words.
    pub(super) fn svg(self, about: &str) -> String {
        let (width, height) = (self.width.ceil(), self.height.ceil());
        let mut root = Shape::new("svg")
            .word("xmlns", "http://www.w3.org/2000/svg")
            .number("width", width)
            .number("height", height)
            .word("viewBox", &format!("0 0 {width} {height}"))
            .word("font-family", FONTS)
            .word("role", "img")
            .0;
        let mut title = Element::new("title");
        title.append(Text::new(clean(about)));
        root.append(title);
        let ground = Rect {
            width,
            height,
            ..Rect::default()
        };
        root.append(Shape::rect(ground, 0.0).word("fill", GROUND).0);
        for shape in self.shapes {
            root.append(shape);
        }
        for label in &self.labels {
            root.append(label.element());
        }
        format!("{root}\n")
    }
}

/// A shape of SVG.
#[derive(Debug)]
pub(super) struct Shape(Element);

impl Shape {
    fn new(name: &str) -> Shape {
        Shape(Element::new(name))
    }

    /// A rectangle with round corners.
    pub(super) fn rect(at: Rect, round: f64) -> Shape {
        let shape = Shape::new("rect")
            .number("x", at.x)
            .number("y", at.y)
            .number("width", at.width)
            .number("height", at.height);
        match round > 0.0 {
            true => shape.number("rx", round),
            false => shape,
        }
    }

    /// A straight line.
    pub(super) fn line(from: (f64, f64), to: (f64, f64)) -> Shape {
        Shape::path(&format!("M{} L{}", pair(from), pair(to)))
    }

    /// A line that leaves by one point and comes by the other, towards points between.
    pub(super) fn curve(from: (f64, f64), by: (f64, f64), and: (f64, f64), to: (f64, f64)) -> Shape {
        Shape::path(&format!(
            "M{} C{} {} {}",
            pair(from),
            pair(by),
            pair(and),
            pair(to)
        ))
    }

    /// A line by its commands.
    pub(super) fn path(commands: &str) -> Shape {
        Shape::new("path").word("d", commands).word("fill", "none")
    }

    pub(super) fn fill(self, colour: &str) -> Shape {
        self.word("fill", colour)
    }

    pub(super) fn stroke(self, colour: &str, width: f64) -> Shape {
        self.word("stroke", colour).number("stroke-width", width)
    }

    /// Any attribute.
    pub(super) fn word(mut self, name: &str, value: &str) -> Shape {
        self.0.assign(name, value);
        self
    }

    fn number(self, name: &str, value: f64) -> Shape {
        let value = number(value);
        self.word(name, &value)
    }
}

pub(super) fn pair((x, y): (f64, f64)) -> String {
    format!("{},{}", number(x), number(y))
}

/// With one digit at most: shorter, and the same on all machines.
fn number(value: f64) -> String {
    let tenths = (value * 10.0).round() as i64;
    let sign = if tenths < 0 { "-" } else { "" };
    let tenths = tenths.unsigned_abs();
    match tenths % 10 {
        0 => format!("{sign}{}", tenths / 10),
        digit => format!("{sign}{}.{digit}", tenths / 10),
    }
}
