// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net/http"
	"sync"
	"time"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/diagram"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/statuspage"
)

// JobsPath is where the handler of WithLocalPage is served.
const JobsPath = "/jobs"

// WithLocalPage makes the status page one for this machine: it needs no token, and it answers only who asks for
// the loopback address. Use it where http.listen is such an address, and nobody else has an account. jobs is a page
// that shows the jobs, served in the same way below JobsPath, and linked to; nil is none.
func WithLocalPage(jobs http.Handler) Option {
	return func(o *options) { o.localPage, o.jobsPage = true, jobs }
}

// WithPace changes how often the database is asked where the consumers stand.
func WithPace(d time.Duration) Option { return func(o *options) { o.pace = d } }

// Address is where http.listen listens, once it does, and empty before.
func (e *Engine) Address() string {
	address, _ := e.address.Load().(string)
	return address
}

// known is what the status page shows beside the health of the process.
type known struct {
	mu     sync.Mutex
	at     time.Time // of the newest look that succeeded; zero before
	newest Observation
	asked  time.Time // when the oldest event was looked for
	oldest *postgres.Oldest
	rounds map[string]*lastRounds
}

// lastRounds is what the newest rounds of one consumer in this process say of it.
type lastRounds struct {
	end     string
	at      time.Time
	failure *statuspage.Failure
}

// newPage makes the status page.
func (e *Engine) newPage() error {
	e.known = &known{rounds: map[string]*lastRounds{}}
	picture := diagram.Compact(e.table)
	access := statuspage.ByToken
	if e.options.localPage {
		access = statuspage.Local
	}
	var err error
	e.page, err = statuspage.New(statuspage.Options{
		Access: access, Token: e.config.HTTP.AdminToken.Reveal(), Version: version(),
		Refusal: e.refusesPage, Facts: e.facts, Wide: picture.Wide, Tall: picture.Tall,
	})
	return err
}

// refusesPage is why this process serves no status page, or empty.
func (e *Engine) refusesPage() string {
	if e.role() == RoleWorker {
		return "the status page is served by the roles api and all, and this process has the role worker"
	}
	return ""
}

// jobsURL is where the jobs are shown.
func (e *Engine) jobsURL() string {
	if e.options.jobsPage != nil {
		return JobsPath + "/"
	}
	return e.config.Jobs.UIURL
}

func (e *Engine) role() Role {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	return e.health.role
}

// observed takes note of a look at the database.
func (k *known) observed(at time.Time, o Observation) (ages map[string]float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.newest = at, o
	ages = make(map[string]float64, len(o.Consumers))
	for _, c := range o.Consumers {
		ages[c.Name] = c.PendingAge.Seconds()
	}
	return ages
}

// wantsOldest reports whether it is time to look for the oldest event again.
func (k *known) wantsOldest(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.asked) < schemaInterval && (k.oldest != nil || k.newest.Head == 0) {
		return false
	}
	k.asked = now
	return true
}

// lookAtOldest asks how far back the log goes, when it is time. Its trouble is that of every look.
func (e *Engine) lookAtOldest(ctx context.Context) {
	if !e.known.wantsOldest(time.Now()) {
		return
	}
	oldest, err := e.store.Oldest(ctx)
	if err != nil {
		return
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	e.known.oldest = oldest
}

// ended takes note of a round. One that ends in a way that says nothing of the consumer is no recovery either.
func (k *known) ended(name string, o consumer.Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.rounds[name]
	if r == nil {
		r = &lastRounds{}
		k.rounds[name] = r
	}
	r.end, r.at = o.End.Name, time.Now()
	switch {
	case o.End.Failure == "" && o.End.Edge != machine.Unchanged && r.failure != nil && !r.failure.Over:
		over := *r.failure
		over.Over = true
		r.failure = &over
	case o.End.Failure != "":
		f := statuspage.Failure{Kind: o.ErrorType(), End: o.End.Name, At: r.at, Since: r.at, Rounds: 1}
		if before := r.failure; before != nil && !before.Over {
			f.Since, f.Rounds = before.Since, before.Rounds+1
		}
		r.failure = &f
	}
}

// facts are what the page shows now.
func (e *Engine) facts() statuspage.Facts {
	role, reasons, cfg := e.role(), e.health.reasons(), e.config
	f := statuspage.Facts{
		Process:  statuspage.Process{Role: string(role), Version: version(), Environment: cfg.Database.Environment, Ready: len(reasons) == 0, Reasons: meanings(reasons)},
		JobsURL:  e.jobsURL(),
		RunsHere: role != RoleAPI,
		Log: statuspage.Log{
			HeadroomWanted: e.headroomWanted(), RetentionSeconds: cfg.Sync.EventRetention.Seconds(), RetentionPolicy: cfg.Sync.RetentionPolicy,
		},
		Identity: statuspage.Identity{State: statuspage.IdentityUnknown},
	}
	e.known.mu.Lock()
	defer e.known.mu.Unlock()
	at, newest, oldest := e.known.at, e.known.newest, e.known.oldest // copies: they are written down after the lock
	f.Fresh = !at.IsZero() && time.Since(at) < e.fresh()
	if !at.IsZero() {
		f.SeenAt = &at
	}
	if f.Fresh {
		f.Log.Head, f.Log.Partitions, f.Log.PartitionSize, f.Log.Headroom = &newest.Head, &newest.Partitions, newest.PartitionSize, &newest.Headroom
		if oldest != nil {
			f.Log.OldestSeq, f.Log.OldestAt, f.Log.OldestSeconds = &oldest.Seq, &oldest.At, new(newest.At.Sub(oldest.At).Seconds())
		}
		f.Identity = identity(newest)
	}
	f.Consumers = e.consumerFacts(f.Fresh)
	return f
}

// consumerFacts are the declared consumers in the order of the file, then the others that have a cursor. The caller
// holds the lock of what is known.
func (e *Engine) consumerFacts(fresh bool) []statuspage.Consumer {
	k := e.known
	states := make(map[string]State, len(k.newest.Consumers))
	for _, s := range k.newest.Consumers {
		states[s.Name] = s
	}
	all := make([]statuspage.Consumer, 0, len(e.config.Consumers))
	add := func(c statuspage.Consumer) {
		s, has := states[c.Name]
		delete(states, c.Name)
		if has && fresh { // what the database said is left out once it is old
			c.Cursor, c.Lag, c.PendingSeconds, c.MovedAt = &s.LastSeq, new(s.Lag()), new(s.PendingAge.Seconds()), &s.UpdatedAt
		}
		if r := k.rounds[c.Name]; r != nil {
			c.End, c.EndedAt, c.Failure = new(r.end), new(r.at), r.failure
		}
		c.Judge(k.newest.At, fresh)
		all = append(all, c)
	}
	for _, declared := range e.config.Consumers {
		add(statuspage.Consumer{Name: declared.Name, Declared: true, Kind: declared.Job.Kind, AlertAfterSeconds: new(declared.PendingAlertAfter.Seconds())})
	}
	for _, s := range k.newest.Consumers {
		if _, left := states[s.Name]; left {
			add(statuspage.Consumer{Name: s.Name})
		}
	}
	return all
}

// identity says whether the database is the one whose history the cursors follow.
func identity(o Observation) statuspage.Identity {
	i := statuspage.Identity{State: statuspage.IdentityUnknown, Epoch: o.Epoch}
	if o.Stored.Known() {
		i.Stored = &statuspage.Database{System: o.Stored.System, Timeline: o.Stored.Timeline}
	}
	if o.Current.Known() {
		i.Current = &statuspage.Database{System: o.Current.System, Timeline: o.Current.Timeline}
	}
	switch {
	case i.Stored == nil || i.Current == nil:
	case o.Finalized():
		i.State = statuspage.IdentitySame
	default:
		i.State = statuspage.IdentityRestored
	}
	return i
}

// meanings says the reasons in words.
func meanings(reasons []api.Reason) []statuspage.Reason {
	said := []statuspage.Reason{}
	for _, r := range reasons {
		said = append(said, statuspage.Reason{Name: string(r), Means: r.Means()})
	}
	return said
}
