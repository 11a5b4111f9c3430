//! Reads MSCCL's XML. What cannot be understood, and what is more than any algorithm has, is refused with its position.

use super::steps::Steps;
use super::{Block, Gpu, Program, Protocol};
use crate::topo::read::{Flaw, Lines, xml};
use crate::types::Collective;
use roxmltree::Node;
use smallvec::SmallVec;

/// Bytes of a file, at most. RCCL's longest has 1.4 MB.
pub(crate) const BYTES: usize = 16 << 20;
const RANKS: usize = 1024;
/// Chunks of the vector; RCCL's files have 512.
pub(super) const CHUNKS: usize = 1 << 16;
/// Chunks of all ranks' buffers.
pub(super) const CELLS: usize = 1 << 21;
/// Chunks that all steps move.
const MOVED: usize = 1 << 19;
/// Thread blocks of all ranks.
const BLOCKS: usize = 1 << 14;
/// Chunks that all steps move times the thread blocks of all ranks: what comparing the clocks of
/// [`races`](super::races) takes.
const LOOKS: usize = 1 << 30;
/// Chunks that all steps move times the ranks with several thread blocks: each of these has a walk of [`races`](super::races).
const WALKS: usize = 1 << 27;
/// Steps times the thread blocks of the rank that has most: what these clocks keep.
const CLOCKS: usize = 1 << 25;

/// Steps of a thread block, with those that only wait, that RCCL takes at most.
const RCCL_STEPS: u32 = 64;

/// What was read, and what should be known of it.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) program: Program,
    pub(crate) notes: Vec<Note>,
    /// What is wrong with steps that are no more in the program.
    pub(crate) flaws: super::Flaws,
}

/// Something that is no flaw of the algorithm, and the first line where it is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) line: u32,
    pub(crate) text: String,
    /// On how many lines.
    pub(crate) times: usize,
}

/// Notes, each once.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn add(&mut self, line: u32, text: &str) {
        match self.0.iter_mut().find(|note| note.text == text) {
            Some(note) => note.times += 1,
            None => self.0.push(Note {
                line,
                text: text.to_owned(),
                times: 1,
            }),
        }
    }
}

/// Reads a text from `source`; `root` is that of a collective that has one, which files do not say.
///
/// # Errors
///
/// What is no MSCCL XML, of no known collective, or too large.
pub(crate) fn read(text: &str, source: &str, root: u32) -> Result<Reading, Flaw> {
    let lines = Lines::new(text);
    let reader = Reader {
        lines: &lines,
        source,
    };
    if text.len() > BYTES {
        let what = format!("{} bytes", text.len());
        return Err(reader.flaw(0, what, format!("an algorithm of at most {} MiB", BYTES >> 20)));
    }
    let document = xml::parse(text, source, &lines).map_err(|flaw| Flaw {
        wanted: "an algorithm in MSCCL's XML".to_owned(),
        ..flaw
    })?;
    reader.program(document.root_element(), root)
}

pub(super) struct Reader<'r> {
    lines: &'r Lines<'r>,
    source: &'r str,
}

pub(super) type Element<'d> = Node<'d, 'd>;

impl Reader<'_> {
    fn flaw(&self, byte: usize, what: String, wanted: impl Into<String>) -> Flaw {
        Flaw {
            source_name: self.source.to_owned(),
            at: self.lines.position(byte),
            what,
            wanted: wanted.into(),
        }
    }

    pub(super) fn at(&self, element: Element<'_>, what: String, wanted: impl Into<String>) -> Flaw {
        self.flaw(element.range().start, what, wanted)
    }

    pub(super) fn line(&self, element: Element<'_>) -> u32 {
        self.lines.line(element.range().start)
    }

    /// An attribute that must be there.
    pub(super) fn word<'d>(&self, element: Element<'d>, name: &str) -> Result<&'d str, Flaw> {
        element.attribute(name).ok_or_else(|| {
            let tag = element.tag_name().name();
            self.at(
                element,
                format!("a {tag} without {name}"),
                format!("{name}=\"...\""),
            )
        })
    }

    /// A number of at least `least` and at most `most`, which must be there.
    pub(super) fn number(
        &self,
        element: Element<'_>,
        name: &str,
        least: i64,
        most: usize,
    ) -> Result<i64, Flaw> {
        let word = self.word(element, name)?;
        let number = word.trim().parse().ok();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                let shown: String = word.chars().take(40).collect();
                self.at(
                    element,
                    format!("{name}=\"{shown}\""),
                    format!("a number from {least} to {most}"),
                )
            })
    }

    /// The same, where it is no less than 0.
    pub(super) fn size(&self, element: Element<'_>, name: &str, most: usize) -> Result<usize, Flaw> {
        let number = self.number(element, name, 0, most)?;
        Ok(usize::try_from(number).unwrap_or(0)) // It is no less than 0.
    }

    /// The same, where -1 means none.
    pub(super) fn option(
        &self,
        element: Element<'_>,
        name: &str,
        most: usize,
    ) -> Result<Option<usize>, Flaw> {
        let number = self.number(element, name, -1, most)?;
        Ok(usize::try_from(number).ok())
    }

    fn program(&self, algo: Element<'_>, root: u32) -> Result<Reading, Flaw> {
        if algo.tag_name().name() != "algo" {
            let what = format!("an element {:?}", algo.tag_name().name());
            return Err(self.at(algo, what, "an algo of MSCCL"));
        }
        let mut notes = Notes::default();
        let ranks = self.size(algo, "ngpus", RANKS)?;
        let collective = self.collective(algo, root, &mut notes)?;
        let protocol = self.protocol(algo)?;
        let chunks = self.size(algo, "nchunksperloop", CHUNKS)?;
        if ranks == 0 || chunks == 0 {
            return Err(self.at(algo, "no GPUs or no chunks".to_owned(), "at least one"));
        }
        if collective.has_blocks() && !chunks.is_multiple_of(ranks) {
            let what = format!(
                "nchunksperloop=\"{chunks}\" for {} among {ranks}",
                collective.name()
            );
            return Err(self.at(algo, what, "as many chunks for each rank"));
        }
        let is_rooted = collective.root().is_some();
        if is_rooted && root as usize >= ranks {
            return Err(self.at(
                algo,
                format!("root {root} among {ranks} ranks"),
                "one of the ranks",
            ));
        }
        let (in_place, out_of_place) = self.places(algo, &mut notes)?;
        for name in ["minBytes", "maxBytes", "nchannels"] {
            if algo.attribute(name).is_none() {
                notes.add(self.line(algo), &format!("RCCL wants {name}, which is missing"));
            }
        }
        let mut flaws = super::Flaws::default();
        let mut gpus: Vec<Option<Gpu>> = vec![None; ranks];
        for gpu in children(algo, "gpu") {
            let rank = self.size(gpu, "id", ranks - 1)?;
            if gpus[rank].is_some() {
                return Err(self.at(gpu, format!("a second GPU {rank}"), "each once"));
            }
            gpus[rank] = Some(self.gpu(gpu, (rank, ranks), &mut notes, &mut flaws)?);
        }
        let missing = gpus.iter().position(Option::is_none);
        if let Some(rank) = missing {
            return Err(self.at(algo, format!("no GPU {rank}"), format!("{ranks}, as ngpus says")));
        }
        let program = Program {
            name: algo
                .attribute("name")
                .unwrap_or_default()
                .chars()
                .take(200)
                .collect(),
            collective,
            protocol,
            chunks,
            in_place,
            out_of_place,
            gpus: gpus.into_iter().flatten().collect(),
        };
        self.bounded(algo, &program)?;
        Ok(Reading {
            program,
            notes: notes.0,
            flaws,
        })
    }

    fn collective(&self, algo: Element<'_>, root: u32, notes: &mut Notes) -> Result<Collective, Flaw> {
        let name = self.word(algo, "coll")?;
        Ok(match name {
            "allreduce" => Collective::AllReduce,
            "allgather" => Collective::AllGather,
            "reducescatter" => Collective::ReduceScatter,
            "reduce_scatter" => {
                notes.add(
                    self.line(algo),
                    "RCCL calls the collective reducescatter, and refuses reduce_scatter",
                );
                Collective::ReduceScatter
            }
            "alltoall" => Collective::AlltoAll,
            "broadcast" => Collective::Broadcast { root },
            "reduce" => Collective::Reduce { root },
            "gather" => Collective::Gather { root },
            "scatter" => Collective::Scatter { root },
            _ => {
                let shown: String = name.chars().take(40).collect();
                let wanted = "allreduce, allgather, reducescatter, alltoall, broadcast, reduce, gather or scatter, whose \
                              results are known";
                return Err(self.at(algo, format!("coll=\"{shown}\""), wanted));
            }
        })
    }

    fn protocol(&self, algo: Element<'_>) -> Result<Protocol, Flaw> {
        let name = self.word(algo, "proto")?;
        let all = [Protocol::Simple, Protocol::Ll, Protocol::Ll128];
        all.into_iter()
            .find(|protocol| protocol.name() == name)
            .ok_or_else(|| {
                let shown: String = name.chars().take(40).collect();
                self.at(algo, format!("proto=\"{shown}\""), "Simple, LL or LL128")
            })
    }

    /// Whether it is for calls in place, and for others. msccl-tools says the first only, and means one of both.
    fn places(&self, algo: Element<'_>, notes: &mut Notes) -> Result<(bool, bool), Flaw> {
        let in_place = self.size(algo, "inplace", 1)? == 1;
        let out_of_place = match algo.attribute("outofplace") {
            Some(_) => self.size(algo, "outofplace", 1)? == 1,
            None => {
                notes.add(self.line(algo), "RCCL wants outofplace, which is missing");
                !in_place
            }
        };
        match in_place || out_of_place {
            true => Ok((in_place, out_of_place)),
            false => {
                let what = "neither for calls in place nor for others".to_owned();
                Err(self.at(algo, what, "inplace=\"1\" or outofplace=\"1\""))
            }
        }
    }

    fn gpu(
        &self,
        gpu: Element<'_>,
        (rank, ranks): (usize, usize),
        notes: &mut Notes,
        flaws: &mut super::Flaws,
    ) -> Result<Gpu, Flaw> {
        let scratch = self.size(gpu, "s_chunks", CELLS)?;
        for name in ["i_chunks", "o_chunks"] {
            self.size(gpu, name, CELLS)?;
        }
        let count = children(gpu, "tb").count();
        let mut blocks: Vec<Option<Block>> = vec![None; count];
        for tb in children(gpu, "tb") {
            let number = self.size(tb, "id", count - 1)?;
            if blocks[number].is_some() {
                return Err(self.at(tb, format!("a second thread block {number}"), "each once"));
            }
            let mut block = Block {
                line: self.line(tb),
                send: self.option(tb, "send", ranks - 1)?,
                recv: self.option(tb, "recv", ranks - 1)?,
                channel: self.option(tb, "chan", 1 << 16)?.unwrap_or(0) as u32,
                steps: Vec::new(),
            };
            let mut steps = Steps {
                reader: self,
                at: (rank, number),
                waits: SmallVec::new(),
                count: 0,
            };
            for step in children(tb, "step") {
                steps.read(step, &mut block.steps, notes, flaws)?;
            }
            if steps.count > RCCL_STEPS {
                notes.add(
                    self.line(tb),
                    &format!("RCCL takes at most {RCCL_STEPS} steps of a thread block"),
                );
            }
            blocks[number] = Some(block);
        }
        Ok(Gpu {
            line: self.line(gpu),
            scratch,
            blocks: blocks.into_iter().flatten().collect(), // As many as there are, and none twice.
        })
    }

    /// It is no more than can be run within seconds.
    fn bounded(&self, algo: Element<'_>, program: &Program) -> Result<(), Flaw> {
        let scratch: usize = program.gpus.iter().map(|gpu| gpu.scratch).sum();
        let cells = program.ranks() * program.chunks * 2 + scratch;
        let blocks = program.each_block().count();
        let steps = program.each_block().flat_map(|block| &block.steps);
        let moved: usize = steps.map(|step| step.count.max(1)).sum();
        let most = program.gpus.iter().map(|gpu| gpu.blocks.len()).max().unwrap_or(0);
        let walks = program.gpus.iter().filter(|gpu| gpu.blocks.len() > 1).count();
        let all = [
            (cells, CELLS, "chunks in the buffers of all ranks"),
            (blocks, BLOCKS, "thread blocks"),
            (moved, MOVED, "chunks that steps move"),
            (
                moved * blocks,
                LOOKS,
                "chunks that steps move times thread blocks",
            ),
            (moved * walks, WALKS, "chunks that steps move times ranks"),
            (
                program.steps().saturating_mul(most),
                CLOCKS,
                "steps times thread blocks of a rank",
            ),
            (
                blocks.saturating_mul(most),
                CLOCKS,
                "thread blocks times those of a rank",
            ),
        ];
        match all.into_iter().find(|(found, most, _)| found > most) {
            Some((found, most, what)) => {
                Err(self.at(algo, format!("{found} {what}"), format!("at most {most}")))
            }
            None => Ok(()),
        }
    }
}

fn children<'d>(element: Element<'d>, name: &'static str) -> impl Iterator<Item = Element<'d>> {
    element.children().filter(move |child| child.has_tag_name(name))
}
