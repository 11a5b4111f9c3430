//! Ranks that do not fit together, or do not come.

use super::*;
use crate::{
    bootstrap::unique_id::Owner,
    net::{Address, Secret},
};

/// All ranks fail, with the same text; what it is.
fn refused(joinings: Vec<Joining<'_>>) -> String {
    let mut texts: Vec<String> = join_all(joinings)
        .into_iter()
        .map(|outcome| match outcome {
            Err(Error::Init { what }) => what,
            other => panic!("{:?}", other.map(|m| m.rank())),
        })
        .collect();
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    texts.remove(0)
}

#[test]
fn impossible_numbers() {
    let id = UniqueId::new().unwrap();
    for (ranks, rank) in [(0, 0), (4, 4), (4, usize::MAX), (100_000, 0)] {
        assert!(matches!(
            join(joining(&id, ranks, rank)),
            Err(Error::Invalid { .. })
        ));
    }
}

#[test]
fn a_rank_that_comes_twice() {
    let id = UniqueId::new().unwrap();
    let text = refused([0, 2, 0].map(|rank| joining(&id, 3, rank)).into());
    let pid = std::process::id();
    assert_eq!(
        text,
        format!("rank 0 came twice: from process {pid} and from process {pid}")
    );
}

#[test]
fn different_numbers_of_ranks() {
    let id = UniqueId::new().unwrap();
    let text = refused(vec![joining(&id, 3, 0), joining(&id, 4, 1)]);
    assert!(
        text.contains("rank 0 was told 3") && text.contains("rank 1 was told 4"),
        "{text}"
    );
}

#[test]
fn different_settings() {
    let id = UniqueId::new().unwrap();
    let tree = Joining {
        knobs: vec![("CCL_ALGO".into(), "tree".into())],
        ..joining(&id, 2, 1)
    };
    let text = refused(vec![joining(&id, 2, 0), tree]);
    assert!(
        text.contains("CCL_ALGO") && text.contains("\"ring\" on rank 0"),
        "{text}"
    );
    assert!(
        text.contains("\"tree\" on rank 1") || text.contains("\"tree\" on rank"),
        "{text}"
    );
}

#[test]
fn the_deadline_names_the_missing() {
    let id = UniqueId::new().unwrap();
    let hasty = |rank| Joining {
        timeout: Duration::from_millis(700),
        ..joining(&id, 4, rank)
    };
    for outcome in join_all(vec![hasty(0), hasty(2)]) {
        match outcome {
            Err(Error::InitTimeout { what }) => {
                assert_eq!(what, "init timed out after 0.7 s: 2 of 4 ranks never came: 1, 3");
            }
            other => panic!("{:?}", other.map(|m| m.rank())),
        }
    }
    // Whoever comes later learns the same.
    let text = join(joining(&id, 4, 1)).err().unwrap().to_string();
    assert!(text.ends_with("never came: 1, 3"), "{text}");
}

#[test]
fn an_id_makes_one_communicator() {
    let id = UniqueId::new().unwrap();
    let first = join(joining(&id, 1, 0)).unwrap();
    let text = join(joining(&id, 1, 0)).err().unwrap().to_string();
    assert!(text.contains("has made its communicator already"), "{text}");
    assert!(!first.trouble());
    drop(first);
    let text = join(joining(&id, 1, 0)).err().unwrap().to_string();
    assert!(text.contains("has made its communicator already"), "{text}");
}

#[test]
fn a_wrong_secret_disturbs_nobody() {
    let id = UniqueId::new().unwrap();
    let forged = UniqueId {
        secret: Secret::new(&[1; 32]),
        ..id.clone()
    };
    let text = join(joining(&forged, 2, 0)).err().unwrap().to_string();
    assert!(text.contains("the secret in the unique id is wrong"), "{text}");
    let both = join_all(vec![joining(&id, 2, 0), joining(&id, 2, 1)]);
    assert!(both.iter().all(Result::is_ok));
}

#[test]
fn an_id_that_nobody_knows() {
    let id = UniqueId::new().unwrap();
    let unknown = UniqueId {
        comm: [3; 16],
        ..id.clone()
    };
    let text = join(joining(&unknown, 2, 0)).err().unwrap().to_string();
    assert!(text.contains("does not know it any more"), "{text}");
    let nowhere = UniqueId {
        addresses: vec![Address::Unix([4; 16])],
        owner: Owner::Maker,
        ..id
    };
    let text = join(joining(&nowhere, 2, 0)).err().unwrap().to_string();
    assert!(
        text.contains("has ended (nobody listens at unix:@ccl-0404"),
        "{text}"
    );
}
