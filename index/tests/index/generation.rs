//! Is what was built found again, in time or with what is missing named, and does nothing damaged open?

use crate::fake::{BagOfWords, Embedder};
use crate::world::{BIRD, CATS, DOGS, FISH, World, ask, documents};
use budgets::{Clock, Deadline, Limits, ManualClock, Moment, SystemClock};
use index::{
    Arms, Coverage, Embed, Index, IndexError, PassageId, Phase, Progress, Query, SearchError, build,
};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn what_was_built_is_found_again() {
    let world = World::new(&[CATS, DOGS, FISH, BIRD, ("notes.xyz", "a,b"), (".hidden.md", "secret")]);
    let summary = world.build();
    assert_eq!((summary.documents, summary.passages, summary.generation), (4, 5, 1));
    assert_eq!((summary.other_files, summary.skipped.len()), (1, 0));
    let index = world.open();
    let info = index.info();
    assert_eq!((info.documents, info.passages, info.embedder.as_str()), (4, 5, "bag of words"));

    let result = index.search(&ask("do cats purr?")).unwrap();
    assert_eq!(result.coverage, Coverage::WHOLE);
    let hit = &result.hits[0];
    assert_eq!(hit.passage.text, "Cats purr when they rest.");
    assert_eq!((hit.lexical.unwrap().rank, hit.vector.unwrap().rank), (1, 1));
    let bird = &index.search(&ask("who sings at dawn")).unwrap().hits[0];
    // The best of the lexical list, and its cosine; no other passage of the document speaks for it.
    assert!((bird.score - (0.4 + 0.6 * bird.vector.unwrap().score)).abs() < 1e-6);
    assert_eq!(index.get(hit.passage.id).unwrap().text, hit.passage.text);
    assert!(index.get(PassageId(1)).is_none());

    assert_eq!(documents(&index, "barking")[0], "pets/dogs.txt");
    assert_eq!(documents(&index, "swimming in the water")[0], "fish.rst");
    assert_eq!(documents(&index, "who sings at dawn")[0], "bird.html");
    let food = index.passages_of("cats.md");
    assert_eq!((food.len(), &food[1].headings[..]), (2, &["Food".to_string()][..]));
    assert!(index.passages_of("none.md").is_empty());
}

#[test]
fn no_query_is_malformed() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let index = world.open();
    for text in [
        "\"cats",
        "title:cats AND (",
        "cats^^2 ~ [a TO",
        "c++ \\",
        "the of and",
        "🐈 cats",
        "+-!(){}[]^\"~*?:\\/ a",
    ] {
        assert!(index.search(&ask(text)).is_ok(), "{text}");
    }
    for text in ["", "  \n", "?!", "\"\""] {
        assert_eq!(index.search(&ask(text)).unwrap_err(), SearchError::EmptyQuery, "{text}");
    }
    let long = "a".repeat(4_001);
    let error = index.search(&ask(&long)).unwrap_err();
    assert_eq!(error, SearchError::QueryTooLong { chars: 4_001, chars_max: 4_000 });
    assert_eq!(index.search(&Query { limit: 0, ..ask("cats") }).unwrap().hits.len(), 1);
}

#[test]
fn equal_texts_are_shown_once() {
    // One title too, so that all scores are equal and the first in order stands for both.
    let files = [("1/cats.txt", "Cats purr."), ("2/cats.txt", "Cats purr."), ("3/cats.txt", "Cats sleep.")];
    let world = World::new(&files);
    world.build();
    assert_eq!(documents(&world.open(), "cats purr"), ["1/cats.txt", "3/cats.txt"]);
}

#[test]
fn progress_tells_every_phase_and_ends_each() {
    let world = World::new(&[CATS, DOGS]);
    let mut seen: Vec<Progress> = Vec::new();
    build(&[world.docs()], &world.data(), &Embedder::default(), &Limits::default(), &mut |progress| {
        seen.push(progress.clone());
    })
    .unwrap();
    assert!(seen.is_sorted_by_key(|progress| progress.phase));
    for (phase, total) in [(Phase::Parse, 2), (Phase::Embed, 3), (Phase::Write, 5)] {
        let last = seen.iter().rfind(|progress| progress.phase == phase).unwrap();
        assert_eq!((last.done, last.total), (total, total), "{phase:?}");
    }
}

#[test]
fn a_rebuild_embeds_only_what_is_new_and_an_open_index_lives_on() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let old = world.open();
    world.write("cats.md", b"# Cats\n\nCats purr when they rest.\n\n## Food\n\nThey eat tuna now.\n");
    let embedder = Embedder::default();
    let summary = world.try_build(&embedder).unwrap();
    assert_eq!((summary.passages, summary.reused, summary.generation), (3, 2, 2));
    assert_eq!(embedder.embedded(), ["Cats > Food\nThey eat tuna now."]);
    assert!(world.generation().ends_with("gen-00000002"));

    let new = world.open();
    assert_eq!(new.search(&ask("tuna")).unwrap().hits[0].passage.text, "They eat tuna now.");
    assert_eq!(old.search(&ask("mice")).unwrap().hits[0].passage.text, "They hunt mice at night.");
    assert_eq!(
        new.search(&ask("purr")).unwrap().hits[0].passage.id,
        old.search(&ask("purr")).unwrap().hits[0].passage.id
    );

    let other = Embedder { id: "other", ..Embedder::default() };
    assert_eq!(world.try_build(&other).unwrap().reused, 0);
}

#[test]
fn opening_embeds_nothing() {
    let world = World::new(&[CATS]);
    world.build();
    let embedder = Arc::new(Embedder::default());
    let shared: Arc<dyn Embed> = Arc::clone(&embedder) as Arc<dyn Embed>;
    Index::open(&world.data(), shared, Arc::new(SystemClock::default()), &Limits::default()).unwrap();
    assert!(embedder.embedded().is_empty());
}

#[test]
fn what_cannot_be_opened_says_why() {
    let world = World::new(&[CATS]);
    let missing = world.try_open(Embedder::default()).err().unwrap();
    assert!(missing.to_string().contains("riposte index PATH... --data"), "{missing}");
    world.build();
    let other = world.try_open(Embedder { id: "other", ..Embedder::default() }).err().unwrap();
    assert!(matches!(other, IndexError::OtherEmbedder { .. }), "{other}");

    let generation = world.generation();
    let files = ["documents.jsonl", "passages.jsonl", "vectors.f32", "manifest.json", "lexical/meta.json"];
    for name in files {
        let path = generation.join(name);
        let good = fs::read(&path).unwrap();
        for bad in [&good[..good.len() - 1], &[&good[1..], b"x"].concat()[..], b""] {
            fs::write(&path, bad).unwrap();
            let error = world.try_open(Embedder::default()).err().unwrap();
            let IndexError::Damaged { file, .. } = &error else { panic!("{name}: {error}") };
            assert!(file.ends_with(name), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(world.try_open(Embedder::default()), Err(IndexError::Damaged { .. })), "{name}");
        fs::write(&path, good).unwrap();
    }
    world.open();
    for format in [1, 99] {
        let manifest = format!("{{\"format\": {format}}}");
        fs::write(generation.join("manifest.json"), &manifest).unwrap();
        assert!(matches!(world.try_open(Embedder::default()), Err(IndexError::Damaged { .. })));
        world.sign(manifest.as_bytes());
        let other = world.try_open(Embedder::default()).err().unwrap();
        assert!(matches!(other, IndexError::OtherFormat { found, .. } if found == format), "{other}");
    }
    fs::write(world.data().join("CURRENT"), "nonsense").unwrap();
    assert!(matches!(world.try_open(Embedder::default()), Err(IndexError::Damaged { .. })));
    // A build replaces what cannot be opened.
    world.build();
    world.open();
}

#[test]
fn a_build_that_fails_leaves_the_old_generation() {
    let world = World::new(&[CATS]);
    world.build();
    world.write("dogs.md", b"Dogs bark.");
    let broken = Embedder { fails: true, ..Embedder::default() };
    assert!(matches!(world.try_build(&broken), Err(IndexError::Embed(_))));
    // A build that was killed halfway leaves a folder that nothing names.
    fs::create_dir(world.data().join("gen-00000002")).unwrap();
    fs::write(world.data().join("gen-00000002/passages.jsonl"), "{").unwrap();
    assert_eq!(world.open().info().generation, 1);
    assert_eq!(world.build().generation, 3);
    assert!(world.generation().ends_with("gen-00000003"));

    let lock = fs::File::open(world.data().join("build.lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(world.try_build(&Embedder::default()), Err(IndexError::Busy { .. })));
    drop(lock);
    fs::remove_dir_all(world.docs()).unwrap();
    assert!(matches!(world.try_build(&Embedder::default()), Err(IndexError::Path { .. })));
    assert_eq!(world.open().info().generation, 3);
}

#[test]
fn an_arm_that_is_late_or_broken_is_missing_and_said_so() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let open = |embed: Embedder, clock: Arc<ManualClock>| {
        Index::open(&world.data(), Arc::new(embed), clock, &Limits::default()).unwrap()
    };
    let query = |at: u64| Query { deadline: Deadline::at(Moment::from_nanos(at)), ..ask("cats purr") };

    let broken = open(Embedder { fails: true, ..Embedder::default() }, Arc::new(ManualClock::default()));
    let result = broken.search(&query(10)).unwrap();
    assert_eq!(result.coverage, Coverage { lexical: 1.0, vector: 0.0 });
    assert_eq!(result.hits[0].passage.document_id, "cats.md");
    assert_eq!(result.hits[0].vector, None);

    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_nanos(10));
    let late = open(Embedder::default(), clock);
    assert!(matches!(late.search(&query(10)), Err(SearchError::Expired { .. })));
    let late_and_broken =
        open(Embedder { fails: true, ..Embedder::default() }, Arc::new(ManualClock::default()));
    assert!(matches!(late_and_broken.search(&query(0)), Err(SearchError::Expired { .. })));

    // The embedder itself uses up the time: what it gives comes too late, whatever the other arm does.
    let clock = Arc::new(ManualClock::default());
    let slow = Embedder { slow: Some((Arc::clone(&clock), Duration::from_nanos(50))), ..Embedder::default() };
    match open(slow, clock).search(&query(10)) {
        Ok(result) => assert_eq!(result.coverage, Coverage { lexical: 1.0, vector: 0.0 }),
        Err(error) => assert!(matches!(error, SearchError::Expired { .. }), "{error}"),
    }
}

#[test]
fn a_large_index_finds_what_an_exact_scan_finds() {
    // More passages than are scanned exactly; each has three words of its own and one of many.
    let world = World::new(&[]);
    let count = 4_200;
    for number in 0..count {
        let text =
            format!("alpha{number} beta{} gamma{} delta{}", number * 7 % count, number % 17, number % 501);
        world.write(&format!("{number:05}.txt"), text.as_bytes());
    }
    world.build();
    let graph = world.generation().join("graph.hnsw.graph");
    assert!(graph.exists());
    let index = world.open();
    let embed = BagOfWords;
    let vectors: Vec<(PassageId, Vec<f32>)> = (0..count)
        .map(|number| {
            let passage = &index.passages_of(&format!("{number:05}.txt"))[0];
            (passage.id, embed.vector(&format!("{}\n{}", passage.title, passage.text)))
        })
        .collect();
    let (mut found, mut wanted) = (0, 0);
    for number in (0..count).step_by(211) {
        let text = format!("alpha{number} gamma{} delta{}", number % 17, (number + 3) % 501);
        let query = embed.vector(&text);
        let mut exact: Vec<(f32, PassageId)> = vectors
            .iter()
            .map(|(id, vector)| (query.iter().zip(vector).map(|(a, b)| a * b).sum::<f32>(), *id))
            .collect();
        exact.sort_by(|a, b| b.0.total_cmp(&a.0));
        let tenth = exact[9].0;
        let result = index.search(&Query { limit: 100, arms: Arms::Vector, ..ask(&text) }).unwrap();
        let near: Vec<f32> =
            result.hits.iter().filter_map(|hit| hit.vector).map(|judged| judged.score).collect();
        // Counted by score, because many passages tie.
        found += near.iter().filter(|score| **score >= tenth - 1e-5).count().min(10);
        wanted += 10;
    }
    assert!(found * 100 >= wanted * 98, "recall@10 {found}/{wanted}");

    // A changed graph is told by its checksum before the library sees it.
    let mut bytes = fs::read(&graph).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&graph, bytes).unwrap();
    assert!(matches!(world.try_open(Embedder::default()), Err(IndexError::Damaged { .. })));
}

/// A clock that goes on by a nanosecond each time somebody looks.
#[derive(Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[test]
fn an_arm_that_is_cut_short_gives_what_it_counted() {
    // Words are counted rarest first, and the clock is looked at every 512 passages.
    let world = World::new(&[]);
    for number in 0..1_300 {
        world.write(&format!("{number:05}.txt"), format!("common word{number}").as_bytes());
    }
    world.build();
    let search = |until: u64| {
        let (embed, clock) = (Arc::new(Embedder::default()), Arc::new(Ticking::default()));
        let index = Index::open(&world.data(), embed, clock, &Limits::default()).unwrap();
        let deadline = Deadline::at(Moment::from_nanos(until));
        index.search(&Query { arms: Arms::Lexical, deadline, ..ask("common word7") })
    };
    // Looks: the arm begins, the search begins, 512 passages with the common word were counted.
    let cut = search(3).unwrap();
    assert!(cut.coverage.lexical > 0.5 && cut.coverage.lexical < 1.0, "{:?}", cut.coverage);
    let found: Vec<&str> = cut.hits.iter().map(|hit| hit.passage.document_id.as_str()).collect();
    assert_eq!(found, ["00007.txt"]);
    let whole = search(1_000).unwrap();
    assert_eq!((whole.coverage.lexical, whole.hits.len()), (1.0, 5));
    assert_eq!(whole.hits[0].passage.document_id, "00007.txt");
    assert!(matches!(search(2), Err(SearchError::Expired { .. })));
}
