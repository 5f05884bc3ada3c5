// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"sync"
	"time"
)

// historyLooks is how many looks at the database are remembered. At one look in 5 seconds that is ten minutes.
const historyLooks = 120

// gapInterval is how often a look that failed is remembered: failures are tried again sooner than looks that
// succeed, and would push them out.
const gapInterval = 5 * time.Second

// History is the pending age of every consumer over time, for the small curves. An age is null where the database
// did not say.
type History struct {
	At      []int64               `json:"at"` // seconds since 1970
	Pending map[string][]*float64 `json:"pending"`
}

// history remembers the newest looks.
type history struct {
	mu    sync.Mutex
	looks []look // oldest first
}

type look struct {
	at   time.Time
	ages map[string]float64 // nil where the look failed
}

// Observed takes note of a look at the database: the pending age of each consumer in seconds, or nil when it
// failed.
func (p *Page) Observed(at time.Time, ages map[string]float64) {
	p.history.add(look{at, ages})
	p.Changed()
}

func (h *history) add(l look) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.looks); l.ages == nil && (n == 0 || l.at.Sub(h.looks[n-1].at) < gapInterval) {
		return
	}
	if len(h.looks) >= historyLooks {
		h.looks = append(h.looks[:0], h.looks[len(h.looks)-historyLooks+1:]...)
	}
	h.looks = append(h.looks, l)
}

// all is the whole history.
func (h *history) all() *History {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := &History{At: []int64{}, Pending: map[string][]*float64{}}
	for n, l := range h.looks {
		all.At = append(all.At, l.at.Unix())
		for name, age := range l.ages {
			if all.Pending[name] == nil {
				all.Pending[name] = make([]*float64, len(h.looks))
			}
			all.Pending[name][n] = &age
		}
	}
	return all
}
