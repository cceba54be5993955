//! Which passages mean what the query means? The nearest unit vectors by cosine.
//!
//! Small indexes are searched exactly: a scan of [`EXACT_PASSAGES_MAX`] vectors takes about as long as a graph search
//! that misses nothing, and cannot miss. Larger ones use an HNSW graph, read from disk as it was built.

use crate::IndexError;
use crate::arm::{ArmError, Found, TopRows};
use crate::view::WantedPart;
use budgets::{Clock, Deadline};
use hnsw_rs::prelude::{AnnT, Distance, Hnsw, HnswIo, Point};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// Up to this many passages the search is exact.
pub(crate) const EXACT_PASSAGES_MAX: usize = 4_096;
/// Up to this many wanted passages of a graph are compared one by one: a walk would mostly meet others.
const EXACT_WANTED_MAX: usize = 8_192;
/// How many more neighbours than its share would need are asked for when some passages are not wanted, as the wanted
/// ones may lie unevenly.
const WANTED_MARGIN: f32 = 1.5;
/// Most neighbours that are asked of a graph; beyond it a scan is as fast and misses nothing.
const SEARCH_WALK_MAX: usize = 2_000;
/// Vectors between two looks at the clock.
const VECTORS_PER_CHECK: usize = 512;
/// Edges of a point; twice as many on the lowest layer. Up to 48 suit high dimensions (Malkov and Yashunin 2018, 4.1).
const EDGES: usize = 24;
const LAYERS_MAX: usize = 16;
/// Candidates that are kept while a point is inserted.
const INSERT_CANDIDATES: usize = 200;
/// Fewest candidates that are kept during a search; more raise recall and time alike.
const SEARCH_CANDIDATES_MIN: usize = 192;
/// Name of the graph's files, before the endings that the library gives them.
pub(crate) const GRAPH: &str = "graph";

/// One minus the cosine of two unit vectors. Rounding can push it below zero, which the graph does not expect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UnitCosine;

impl Distance<f32> for UnitCosine {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        (1.0 - dot(a, b)).max(0.0)
    }
}

/// Dot product in eight lanes, which the compiler turns into vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(x, y)| x * y).sum();
    let mut lanes = [0.0f32; LANES];
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// Vectors of a generation, ready for search.
pub(crate) enum Vectors {
    /// All vectors behind one another.
    Exact { dimensions: usize, values: Vec<f32> },
    /// A graph over them, and its points by row.
    Graph { graph: Box<Hnsw<'static, f32, UnitCosine>>, points: Vec<Arc<Point<'static, f32>>> },
}

/// How many threads build a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One, because the others answer queries meanwhile.
    One,
    /// All of the machine's.
    All,
}

/// Builds the graph over `values` and writes it into `dir`.
pub(crate) fn write_graph(
    dir: &Path,
    dimensions: usize,
    values: &[f32],
    threads: Threads,
) -> Result<(), IndexError> {
    let points: Vec<(&[f32], usize)> = values.chunks_exact(dimensions).zip(0..).collect();
    let build = || {
        let graph =
            Hnsw::<f32, UnitCosine>::new(EDGES, points.len(), LAYERS_MAX, INSERT_CANDIDATES, UnitCosine);
        match threads {
            Threads::One => points.iter().for_each(|point| graph.insert_slice(*point)),
            Threads::All => graph.parallel_insert_slice(&points),
        }
        graph.file_dump(dir, GRAPH)
    };
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(IndexError::Vector(error.to_string())),
        Err(_) => Err(IndexError::Vector("the graph could not be built".into())),
    }
}

impl Vectors {
    /// Reads the graph that [`write_graph`] wrote; its files must have been checked.
    pub(crate) fn open_graph(dir: &Path) -> Result<Vectors, IndexError> {
        // The library ties a graph to the life of its reader, for the case that vectors stay mapped in the file. Here
        // they do not; so the reader, some hundred bytes, is left behind once per opened generation.
        let load = || {
            let reader: &'static mut HnswIo = Box::leak(Box::new(HnswIo::new(dir, GRAPH)));
            reader.load_hnsw::<f32, UnitCosine>()
        };
        match catch_unwind(AssertUnwindSafe(load)) {
            Ok(Ok(graph)) => {
                let mut points: Vec<Arc<Point<'static, f32>>> =
                    graph.get_point_indexation().into_iter().collect();
                points.sort_unstable_by_key(|point| point.get_origin_id());
                Ok(Vectors::Graph { graph: Box::new(graph), points })
            }
            Ok(Err(error)) => Err(IndexError::Vector(error.to_string())),
            Err(_) => Err(IndexError::Vector("the graph could not be read".into())),
        }
    }

    /// The vector of a row.
    pub(crate) fn get(&self, row: usize) -> Option<&[f32]> {
        match self {
            Vectors::Exact { dimensions, values } => values.get(row * dimensions..(row + 1) * dimensions),
            // Rows are the points' own numbers, without gaps; a graph that lost some must not lend another's vector.
            Vectors::Graph { points, .. } => {
                let point = points.get(row).filter(|point| point.get_origin_id() == row)?;
                Some(point.get_v())
            }
        }
    }

    /// The cosine of a query and one passage.
    pub(crate) fn cosine(&self, query: &[f32], row: usize) -> Option<f32> {
        self.get(row).map(|vector| dot(query, vector))
    }
}

/// The `depth` nearest of the wanted passages, nearest first, by their rows through all parts, with their cosines. What was
/// compared when the deadline came is given back.
pub(crate) fn search(
    parts: &[WantedPart<'_>],
    query: &[f32],
    depth: usize,
    (deadline, clock): (Deadline, &dyn Clock),
) -> Result<Found, ArmError> {
    if deadline.expired(clock.now()) {
        return Err(ArmError::Expired);
    }
    let mut top = TopRows::new(depth);
    let whole: usize = parts.iter().map(|one| one.count).sum();
    let mut compared = 0;
    for one in parts.iter().filter(|one| one.count > 0) {
        let near = match &one.part.vectors {
            Vectors::Graph { graph, .. } if one.count > EXACT_WANTED_MAX => nearest(graph, one, query, depth),
            _ => None,
        };
        if let Some(near) = near {
            near.iter().for_each(|(row, cosine)| top.offer(one.first + row, *cosine));
            compared += one.count;
            continue;
        }
        for row in (0..one.part.rows()).filter(|row| one.has(*row)) {
            if compared > 0 && compared % VECTORS_PER_CHECK == 0 && deadline.expired(clock.now()) {
                return Ok(Found { ranked: top.into_ranked(), share: compared as f32 / whole as f32 });
            }
            if let Some(cosine) = one.part.vectors.cosine(query, row) {
                top.offer(one.first + row, cosine);
            }
            compared += 1;
        }
    }
    Ok(Found { ranked: top.into_ranked(), share: 1.0 })
}

/// The nearest wanted rows that a walk through the graph comes by; none when it came by too few of them. The walk goes
/// over unwanted points too, as they hold the graph together, and looks for so many more.
///
/// The library cannot be stopped; it looks at some thousand points, which takes about a millisecond.
fn nearest(
    graph: &Hnsw<'static, f32, UnitCosine>,
    one: &WantedPart<'_>,
    query: &[f32],
    depth: usize,
) -> Option<Vec<(usize, f32)>> {
    let all = one.part.rows();
    let more = if one.count == all { 1.0 } else { WANTED_MARGIN * all as f32 / one.count as f32 };
    let asked = (depth as f32 * more).ceil() as usize;
    if asked > SEARCH_WALK_MAX {
        return None;
    }
    let near = graph.search(query, asked, SEARCH_CANDIDATES_MIN.max(2 * asked));
    let found: Vec<(usize, f32)> =
        near.iter().filter(|near| one.has(near.d_id)).map(|near| (near.d_id, 1.0 - near.distance)).collect();
    (found.len() >= depth.min(one.count)).then_some(found)
}
