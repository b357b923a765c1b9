//! Places of slices in a row. A row is a sequence of consecutive slices of one group. Each of the first slices has its
//! own place. Later slices share places that cover more slices with their distance from the start, because the loading
//! of a working set slows down towards its end.

/// Number of places. The last place covers all further slices.
pub const PLACES: usize = 18;
/// Number of leading places of one slice each. Behind them, each power of two is covered by two places of equal width.
const SINGLE: u64 = 4;

/// Returns the place of slice number `slice` of a row, counted from 0.
#[inline]
#[must_use]
pub(crate) fn place_of_slice(slice: u64) -> usize {
    if slice < SINGLE {
        return slice as usize;
    }
    let power = slice.ilog2();
    let second_half = (slice >> (power - 1)) & 1;
    (SINGLE as usize + 2 * (power as usize - 2) + second_half as usize).min(PLACES - 1)
}

/// Returns the number of slices at `place` in a row of `length` slices.
#[must_use]
pub(crate) fn slices_at_place(place: usize, length: u64) -> u64 {
    let begin = first_slice_at(place);
    let end = if place + 1 < PLACES { first_slice_at(place + 1) } else { u64::MAX };
    end.min(length).saturating_sub(begin)
}

/// Returns the number of the first slice at `place`.
fn first_slice_at(place: usize) -> u64 {
    if place < SINGLE as usize {
        return place as u64;
    }
    let halves = place - SINGLE as usize;
    let power = 2 + halves / 2;
    (1 << power) + ((halves as u64 % 2) << (power - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slice_is_counted_at_one_place_in_order() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15].map(place_of_slice), [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert_eq!(
            (place_of_slice(511), place_of_slice(512), place_of_slice(u64::MAX)),
            (PLACES - 1, PLACES - 1, PLACES - 1)
        );
        for slice in 0..1000 {
            let at = place_of_slice(slice);
            assert!(first_slice_at(at) <= slice && (at + 1 == PLACES || slice < first_slice_at(at + 1)), "{slice}");
        }
    }

    #[test]
    fn the_slices_of_a_row_are_those_of_its_places() {
        for length in [0, 1, 4, 5, 16, 100, 1000] {
            assert_eq!((0..PLACES).map(|place| slices_at_place(place, length)).sum::<u64>(), length);
        }
    }
}
