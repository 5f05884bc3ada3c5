// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"math"
	"sync"

	"example.com/bothy/engine/round"
)

// nearBatches is how many batches a cursor may move, under other workers, between two looks of this one.
const nearBatches = 16

// near remembers where cursors were last seen. A server that is told near which numbers the events are opens the
// partitions that can hold them, and not every one of the log, which it would have to do when only the cursor that
// the same statement reads could say it. It is a hint: a round whose cursor is elsewhere reads again.
type near struct{ cursors sync.Map } // name -> int64

// note takes note of where a cursor is.
func (n *near) note(name string, cursor int64) { n.cursors.Store(name, cursor) }

// window is between which numbers the next events of a consumer should be, the first of the two left out.
func (n *near) window(c round.Consumer) (above, upTo int64) {
	seen, known := n.cursors.Load(c.Name)
	if !known {
		return -1, math.MaxInt64
	}
	above, _ = seen.(int64)
	if width := nearBatches * int64(c.Batch); above < math.MaxInt64-width {
		return above, above + width
	}
	return above, math.MaxInt64
}
