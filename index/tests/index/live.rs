//! Is what was put found by the next search and after any end of the process, and what was deleted never again?

use crate::fake::Embedder;
use crate::world::{CATS, DOGS, FISH, World, ask, documents};
use budgets::{Limits, SystemClock};
use index::{
    Filter, Index, IndexError, Meta, NewDocument, Origin, Outcome, Query, SearchError, full_id, parse_id,
};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

fn open_with(world: &World, limits: &Limits) -> Result<(Index, Arc<Embedder>), IndexError> {
    let embedder = Arc::new(Embedder::default());
    let embed = Arc::clone(&embedder) as Arc<dyn index::Embed>;
    let index = Index::open_live(&world.data(), embed, Arc::new(SystemClock::default()), limits)?;
    Ok((index, embedder))
}

fn open(world: &World) -> Index {
    open_with(world, &Limits::default()).unwrap().0
}

fn text(id: &str, text: &str) -> NewDocument {
    NewDocument {
        id: id.into(),
        file_name: "note.txt".into(),
        source: id.into(),
        bytes: text.as_bytes().to_vec(),
        meta: Meta::default(),
        origin: Origin::Put,
    }
}

fn put(index: &Index, id: &str, words: &str) -> Outcome {
    index.put(text(id, words)).unwrap().0
}

fn tagged(id: &str, words: &str, collection: &str, tags: &[&str], date: &str) -> NewDocument {
    let tags = tags.iter().map(|tag| (*tag).to_string()).collect();
    let meta = Meta { title: None, collection: collection.into(), tags, date: Some(date.parse().unwrap()) };
    NewDocument { meta, ..text(id, words) }
}

#[test]
fn what_is_put_is_found_at_once_and_after_a_restart() {
    let world = World::new(&[CATS]);
    world.build();
    let index = open(&world);
    assert_eq!(put(&index, "owls", "Owls hoot in the forest."), Outcome::Created);
    assert_eq!(documents(&index, "who hoots in the forest")[0], "owls");
    assert_eq!(put(&index, "owls", "Owls glide without a sound."), Outcome::Replaced);
    assert_eq!(documents(&index, "glide without a sound")[0], "owls");
    assert!(!index.passages_of("owls").iter().any(|passage| passage.text.contains("hoot")));
    assert_eq!(index.delete(&["cats.md", "none"]).unwrap(), [true, false]);
    assert!(documents(&index, "cats purr").iter().all(|id| id == "owls"));
    assert!(index.document("cats.md").is_none() && index.passages_of("cats.md").is_empty());
    drop(index);

    // Read as another process would, and by the next writer.
    for index in [world.open(), open(&world)] {
        assert_eq!(documents(&index, "glide without a sound"), ["owls"]);
        assert_eq!((index.info().documents, index.info().passages, index.info().passages_dead), (1, 1, 2));
    }
}

#[test]
fn an_index_begins_empty_and_one_that_reads_takes_nothing() {
    let world = World::new(&[]);
    let index = open(&world);
    assert_eq!((index.info().documents, index.info().generation), (0, 1));
    assert!(index.search(&ask("anything")).unwrap().hits.is_empty());
    assert_eq!(index.search(&ask("?!")).unwrap_err(), SearchError::EmptyQuery);
    put(&index, "a", "Ants march.");
    assert!(matches!(world.try_build(&Embedder::default()), Err(IndexError::Busy { .. })));
    assert!(matches!(open_with(&world, &Limits::default()), Err(IndexError::Busy { .. })));
    let reader = world.open();
    assert!(!reader.info().is_writable && index.info().is_writable);
    assert!(matches!(reader.put(text("b", "Bees.")), Err(IndexError::ReadOnly)));
    assert!(matches!(reader.delete(&["a"]), Err(IndexError::ReadOnly)));
}

#[test]
fn what_stands_there_already_is_not_embedded_again() {
    let world = World::new(&[]);
    let (index, embedder) = open_with(&world, &Limits::default()).unwrap();
    let two = "# Owls\n\nOwls hoot.\n\n## Food\n\nThey hunt mice.\n";
    let document = |bytes: &str| NewDocument { file_name: "owls.md".into(), ..text("owls", bytes) };
    index.put(document(two)).unwrap();
    assert_eq!(embedder.embedded().len(), 2);
    assert_eq!(index.put(document(two)).unwrap().0, Outcome::Unchanged);
    assert_eq!((embedder.embedded().len(), index.info().revision), (2, 1));
    // Of a changed document only what is new.
    index.put(document(&two.replace("mice", "voles"))).unwrap();
    assert_eq!(embedder.embedded()[2..], ["Owls > Food\nThey hunt voles."]);
    // What is said about it changes without its text.
    let meta = Meta { tags: vec!["birds".into()], ..Meta::default() };
    let (outcome, info) = index.put(NewDocument { meta, ..document(&two.replace("mice", "voles")) }).unwrap();
    assert_eq!((outcome, info.meta.tags.as_slice()), (Outcome::Replaced, &["birds".to_string()][..]));
    assert_eq!(embedder.embedded().len(), 3);
}

#[test]
fn a_bad_document_costs_itself_only() {
    let world = World::new(&[]);
    let index = open(&world);
    let unknown = NewDocument { file_name: "a.xyz".into(), ..text("x", "text") };
    let outcomes = index.put_all(vec![
        text("a", "Ants march."),
        text("", "no name"),
        text("blank", " \n "),
        unknown,
        text("b", "Bees hum."),
        text("a", "Ants dig."),
    ]);
    let told: Vec<String> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Ok((outcome, _)) => format!("{outcome:?}"),
            Err(error) => error.to_string(),
        })
        .collect();
    assert_eq!((told[0].as_str(), told[4].as_str(), told[5].as_str()), ("Created", "Created", "Replaced"));
    assert!(told[1].contains("1 to 512 bytes") && told[2].contains("no text"), "{told:?}");
    assert!(told[3].contains("a.xyz") && told[3].contains(".md"), "{told:?}");
    assert_eq!(index.passages_of("a")[0].text, "Ants dig.");
    let ids: Vec<String> = index.documents(&Filter::ALL, None, 10).into_iter().map(|info| info.id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn filters_hold_inside_both_arms() {
    let world = World::new(&[DOGS, FISH]);
    world.build();
    let index = open(&world);
    let words = "Birds sing at dawn.";
    // More unwanted documents of the same words than an arm gives candidates.
    let crowd = (0..120).map(|number| tagged(&format!("crowd{number}"), words, "crowd", &[], "2026-01-01"));
    index.put_all(crowd.collect());
    let lark = "Birds sing at dawn in spring, the lark before all others, and rest at noon.";
    index.put(tagged("lark", lark, "birds", &["new", "song"], "2026-05-01")).unwrap();
    let (birds, song) = (["birds".to_string()], ["song".to_string()]);
    let found = |filter: Filter<'_>| -> Vec<String> {
        let result = index.search(&Query { filter, ..ask("birds sing at dawn") }).unwrap();
        result.hits.iter().map(|hit| hit.passage.document_id.clone()).collect()
    };
    let day = |text: &str| Some(text.parse().unwrap());
    assert_eq!(found(Filter { collections: &birds, ..Filter::ALL }), ["lark"]);
    assert_eq!(found(Filter { tags: &song, ..Filter::ALL }), ["lark"]);
    assert_eq!(found(Filter { from: day("2026-04-01"), ..Filter::ALL }), ["lark"]);
    assert_eq!(found(Filter { source: "la", ..Filter::ALL }), ["lark"]);
    assert!(found(Filter { from: day("2026-06-01"), ..Filter::ALL }).is_empty());
    let names: Vec<(String, usize)> =
        index.collections(&Filter::ALL).into_iter().map(|one| (one.name, one.documents)).collect();
    assert_eq!(names, [("birds".into(), 1), ("crowd".into(), 120), ("default".into(), 2)]);
}

#[test]
fn a_rebuild_takes_over_while_documents_come_and_go() {
    let world = World::new(&[CATS]);
    world.build();
    let index = open(&world);
    let name = |number: usize| format!("n{number:05}");
    let batch =
        |from: usize| (from..from + 100).map(|at| text(&name(at), &format!("word{at} of many"))).collect();
    for from in (0..3_000).step_by(100) {
        assert!(index.put_all(batch(from)).iter().all(Result::is_ok));
        index.delete(&[&name(from)]).unwrap();
    }
    index.settle();
    let info = index.info();
    assert!(info.generation > 1, "{info:?}");
    assert_eq!((info.documents, info.passages), (2_971, 2_972));
    for at in [1, 1_999, 2_999] {
        assert_eq!(documents(&index, &format!("word{at}"))[0], name(at));
    }
    assert!(index.document(&name(2_900)).is_none());
    drop(index);
    assert_eq!(world.open().info().documents, 2_971);
    // What was put stays when the folder is indexed again; the journals that a generation holds are gone.
    let summary = world.build();
    assert_eq!((summary.documents, summary.kept), (2_971, 2_970));
    let files = fs::read_dir(world.data()).unwrap().flatten().map(|entry| entry.file_name());
    let journals = files.filter(|name| name.to_string_lossy().starts_with("journal-"));
    assert_eq!(journals.count(), 1);
}

#[test]
fn documents_that_come_too_fast_are_refused_in_words() {
    let world = World::new(&[]);
    let (index, _) = open_with(&world, &Limits { live_passages_max: 3, ..Limits::default() }).unwrap();
    for id in ["a", "b", "c"] {
        put(&index, id, &format!("{id} stands here."));
    }
    let error = index.put(text("d", "One more.")).unwrap_err();
    assert!(matches!(error, IndexError::Behind { waiting: 4, waiting_max: 3 }), "{error}");
    // The refusal has started a rebuild, after which there is room.
    index.settle();
    assert_eq!(put(&index, "d", "One more."), Outcome::Created);
    assert_eq!(index.info().documents, 4);
}

#[test]
fn a_document_that_never_fits_is_told_from_one_that_must_wait() {
    let world = World::new(&[]);
    let (index, embedder) = open_with(&world, &Limits { live_passages_max: 2, ..Limits::default() }).unwrap();
    let three = "# A\n\nAnts.\n\n## B\n\nBees.\n\n## C\n\nCats.\n";
    let large = NewDocument { file_name: "large.md".into(), ..text("large", three) };
    let outcomes = index.put_all(vec![large, text("a", "Ants march.")]);
    let told = |outcome: &Result<_, IndexError>| outcome.as_ref().err().map(ToString::to_string);
    assert!(matches!(outcomes[0], Err(IndexError::TooManyPassages { passages: 3, passages_max: 2 })));
    assert!(told(&outcomes[0]).unwrap().contains("limits.live_passages_max"), "{outcomes:?}");
    assert!(outcomes[1].is_ok() && index.document("large").is_none(), "{outcomes:?}");
    assert!(!embedder.embedded().iter().any(|text| text.contains("Bees")));
    // Each fits by itself, and all of them never will.
    let crowd = ["b", "c", "d"].map(|id| text(id, &format!("{id} stands here.")));
    for outcome in index.put_all(crowd.to_vec()) {
        assert!(matches!(outcome, Err(IndexError::TooManyPassages { passages: 3, passages_max: 2 })));
    }
}

#[test]
fn when_a_batch_fails_each_document_is_told_why() {
    let world = World::new(&[]);
    let index = open(&world);
    put(&index, "old", "It stood there.");
    drop(index);
    let broken = Arc::new(Embedder { fails: true, ..Embedder::default() });
    let clock = Arc::new(SystemClock::default());
    let index = Index::open_live(&world.data(), broken, clock, &Limits::default()).unwrap();
    let outcomes = index.put_all(vec![
        text("a", "Ants."),
        text("old", "It stood there."),
        text("", "x"),
        text("b", "Bees."),
    ]);
    assert!(matches!(outcomes[0], Err(IndexError::Embed(_))), "{outcomes:?}");
    assert!(matches!(outcomes[1], Ok((Outcome::Unchanged, _))), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(IndexError::Document { .. })), "{outcomes:?}");
    assert!(matches!(outcomes[3], Err(IndexError::Embed(_))), "{outcomes:?}");
    assert_eq!(index.info().documents, 1);
}

#[test]
fn of_several_with_one_name_the_last_stands_even_if_it_stood_there_before() {
    let world = World::new(&[]);
    let index = open(&world);
    put(&index, "a", "Ants march.");
    let outcomes = index.put_all(vec![text("a", "Ants dig."), text("a", "Ants march.")]);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|outcome| outcome.unwrap().0).collect();
    assert_eq!(outcomes, [Outcome::Replaced, Outcome::Replaced]);
    assert_eq!(index.passages_of("a")[0].text, "Ants march.");
}

/// Whether a word stands in any file of the index.
fn is_on_disk(world: &World, word: &str) -> bool {
    let mut files = Vec::new();
    files_below(&world.data(), &mut files);
    let holds = |path: &PathBuf| {
        fs::read(path).is_ok_and(|bytes| bytes.windows(word.len()).any(|window| window == word.as_bytes()))
    };
    files.iter().any(holds)
}

#[test]
fn deleted_text_leaves_the_disk() {
    let world = World::new(&[]);
    world.write("a.txt", b"The aardvarkword was here.");
    world.build();
    let (index, _) = open_with(&world, &Limits { deleted_text_ms_max: 100, ..Limits::default() }).unwrap();
    put(&index, "b", "The bisonword is replaced.");
    put(&index, "b", "The badgerword stays.");
    index.delete(&["a.txt"]).unwrap();
    // Nothing else asks for a rebuild of so small an index.
    for _ in 0..600 {
        if !["aardvarkword", "bisonword"].iter().any(|word| is_on_disk(&world, word)) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!is_on_disk(&world, "aardvarkword") && !is_on_disk(&world, "bisonword"));
    assert!(is_on_disk(&world, "badgerword"));
    drop(index);

    // By itself, when it is asked for; and by who opens the index next.
    let index = open(&world);
    index.delete(&["b"]).unwrap();
    assert!(is_on_disk(&world, "badgerword"));
    index.compact().unwrap();
    assert!(!is_on_disk(&world, "badgerword"));
    put(&index, "c", "The caribouword goes.");
    index.delete(&["c"]).unwrap();
    drop(index);
    let limits = Limits { deleted_text_ms_max: 0, ..Limits::default() };
    let (index, _) = open_with(&world, &limits).unwrap();
    let generation = index.info().generation;
    while index.info().generation == generation {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!is_on_disk(&world, "caribouword"));
}

#[test]
fn a_writer_that_opens_removes_what_a_killed_one_left() {
    let world = World::new(&[CATS]);
    world.build();
    let (data, left) = (world.data(), ["gen-00000000", "gen-00000009", "journal-00000000"]);
    left[..2].iter().for_each(|name| fs::create_dir(data.join(name)).unwrap());
    fs::write(data.join(left[2]), "Deleted text.").unwrap();
    // One that reads leaves all as it is.
    world.open();
    assert!(left.iter().all(|name| data.join(name).exists()));
    let index = open(&world);
    assert!(left.iter().all(|name| !data.join(name).exists()));
    assert_eq!(documents(&index, "cats purr")[0], "cats.md");
}

#[test]
fn a_rebuild_that_fails_leaves_all_as_it_was_and_the_next_one_makes_it_good() {
    let world = World::new(&[CATS]);
    world.build();
    let index = open(&world);
    put(&index, "a", "Ants march.");
    // Where the next generation would be made there is something that cannot be replaced.
    let blocked = world.data().join("gen-18446744073709551615");
    fs::create_dir(&blocked).unwrap();
    assert!(matches!(index.compact(), Err(IndexError::Io { .. })));
    put(&index, "b", "Bees hum.");
    assert_eq!((index.info().generation, index.info().documents), (1, 3));
    assert_eq!(world.open().info().documents, 3);
    fs::remove_dir(&blocked).unwrap();
    index.compact().unwrap();
    assert_eq!((index.info().generation, index.info().documents, index.info().passages_fresh), (2, 3, 0));
    assert_eq!(documents(&index, "bees hum")[0], "b");
}

fn files_below(folder: &PathBuf, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
}

#[test]
fn a_damaged_file_is_made_anew_from_the_stored_documents() {
    let world = World::new(&[CATS, DOGS]);
    world.build();
    let index = open(&world);
    put(&index, "owls", "Owls hoot.");
    drop(index);
    let mut files = Vec::new();
    files_below(&world.generation(), &mut files);
    let derived = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let stored = ["manifest.json", "documents.jsonl", "passages.jsonl"].contains(&name.as_str());
        !stored && !name.starts_with('.')
    };
    let count = files.iter().filter(|path| derived(path)).count();
    assert!(count > 3, "{files:?}");
    for turn in 0..count {
        let mut files = Vec::new();
        files_below(&world.generation(), &mut files);
        files.retain(derived);
        files.sort();
        fs::write(&files[turn], b"damaged").unwrap();
        let Err(IndexError::Damaged { file, .. }) = world.try_open(Embedder::default()) else { panic!() };
        assert_eq!(file, files[turn]);
        let index = open(&world);
        assert_eq!(index.info().documents, 3);
        assert_eq!(documents(&index, "owls hoot")[0], "owls");
        assert_eq!(documents(&index, "cats purr")[0], "cats.md");
    }
    // What cannot be made anew is named, and left for a build.
    fs::write(world.generation().join("passages.jsonl"), b"damaged").unwrap();
    let error = open_with(&world, &Limits::default()).err().unwrap();
    assert!(
        matches!(&error, IndexError::Damaged { file, .. } if file.ends_with("passages.jsonl")),
        "{error}"
    );
}

#[test]
fn a_tenant_finds_its_own_and_the_shared_documents_and_no_one_elses() {
    let world = World::new(&[CATS]);
    world.build();
    let index = open(&world);
    for owner in ["acme", "zeta"] {
        put(&index, &full_id(Some(owner), "note").unwrap(), &format!("Cats purr at {owner}, says its note."));
    }
    let sees = |index: &Index, tenant: Option<&str>| -> Vec<String> {
        let filter = Filter { tenant, ..Filter::ALL };
        let found = index.search(&Query { filter, ..ask("cats purr note") }).unwrap();
        let mut ids: Vec<String> = found
            .hits
            .iter()
            .map(|hit| {
                let (owner, id) = parse_id(&hit.passage.document_id);
                format!("{}:{id}", owner.unwrap_or_default())
            })
            .collect();
        ids.sort();
        ids.dedup();
        assert_eq!(index.documents(&filter, None, 9).len(), ids.len());
        ids
    };
    let check = |index: &Index| {
        assert_eq!(sees(index, None), [":cats.md"]);
        assert_eq!(sees(index, Some("acme")), [":cats.md", "acme:note"]);
        assert_eq!(sees(index, Some("zeta")), [":cats.md", "zeta:note"]);
        assert_eq!(sees(index, Some("other")), [":cats.md"]);
    };
    check(&index);
    // One tenant's name is not another's: each deletes its own.
    assert_eq!(index.delete(&[&full_id(Some("acme"), "note").unwrap(), "note"]).unwrap(), [true, false]);
    assert_eq!(sees(&index, Some("zeta")), [":cats.md", "zeta:note"]);
    put(&index, &full_id(Some("acme"), "note").unwrap(), "Cats purr at acme again, says the note.");
    drop(index);
    check(&open(&world));
}
