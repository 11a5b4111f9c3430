//! Targets of rendezvous by environment: see [`crate::fuzzing`].

use super::{
    carrier::Card,
    launcher::Launch,
    pmi, slurm,
    variables::Variables,
    words::{Answer, Decoded, Hello},
};

/// What a launcher says, as lines of NAME=value.
pub(crate) fn launch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let look_up = |wanted: &str| {
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.find_map(|(name, value)| (name == wanted).then(|| value.to_owned()))
    };
    // The last line may be an ancestor's name.
    let ancestors = text.lines().last().map(str::to_owned).into_iter();
    match Launch::read(&Variables::of(&look_up), ancestors) {
        Ok(Some(launch)) => {
            assert!(launch.rank < launch.ranks);
            assert!(
                launch
                    .local_ranks
                    .is_none_or(|here| (1..=launch.ranks).contains(&here))
            );
            let _ = (launch.spread(), launch.is_named(), launch.master_port.number());
        }
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for line in text.lines() {
        let _ = slurm::first_host(line);
        let _ = slurm::tasks_of_node(line, 3);
    }
}

/// Rank 0's card, as the launcher carried it.
pub(crate) fn card(bytes: &[u8]) {
    if let Some(card) = Card::decode(&String::from_utf8_lossy(bytes)) {
        assert!(!card.at.is_empty());
        assert_eq!(card.encode().len(), bytes.len());
    }
}

/// A line of the process manager's.
pub(crate) fn pmi(bytes: &[u8]) {
    pmi::read(&String::from_utf8_lossy(bytes));
}

/// What is said at rank 0's door, on both sides of it.
pub(crate) fn door(bytes: &[u8]) {
    if let Some(hello) = bytes.first_chunk()
        && let Some(hello) = Hello::decode(hello)
    {
        assert_eq!(Some(&hello.encode()), bytes.first_chunk());
        let ours = Hello {
            version: 1,
            rank: 0,
            ranks: 4,
        };
        let _ = hello.refusal(&ours);
    }
    match Answer::decode(bytes) {
        Decoded::Whole(_) => assert!(bytes.len() >= 20),
        Decoded::Unfinished => assert!(bytes.len() < Answer::MOST),
        Decoded::Garbage => {}
    }
}
