// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/bothy/engine/document"
)

// checker applies the rules that concern more than one value. A value that has a problem of its own, or
// that only the environment knows, is left out: nothing can be said about it.
type checker struct {
	*document.Tree

	cfg      *Config
	compared int // what comparing patterns has cost so far
}

func check(cfg *Config, tree *document.Tree) {
	cfg.trim()
	c := &checker{Tree: tree, cfg: cfg}
	c.urls()
	c.names()
	c.kinds()
	c.ages()
	c.pool()
	c.partition()
	c.restored()
	for i := range cfg.Consumers {
		c.types(i)
		c.targets(i)
		c.failures(i)
	}
}

// trim takes from each query what the parentheses around it could not bear: a last semicolon, a comment.
func (c *Config) trim() {
	for i := range c.Consumers {
		rule := &c.Consumers[i].Recipients
		if query, why, _ := trimQuery(rule.Query); why == "" {
			rule.Query = query
		}
	}
}

// in is the path of a key of a consumer.
func in(i int, key string) string { return "consumers[" + strconv.Itoa(i) + "]." + key }

// usable reports whether the value of a path can be compared: it is a default, or it is written and sound.
func (c *checker) usable(path string) bool { return !c.Written(path) || c.Sound(path) }

// source is where a value of a consumer comes from: its own key, or the one of the section consumer.
func (c *checker) source(i int, own, section string) string {
	if path := in(i, own); c.Written(path) {
		return path
	}
	return "consumer." + section
}

// either gives two paths, the one to point at first: a value that is written can be changed where it stands.
func (c *checker) either(first, second string) (at, also string) {
	if !c.Written(first) && c.Written(second) {
		return second, first
	}
	return first, second
}

// conflict reports two values that do not go together. It names both keys and shows neither value. report
// is Refuse or Warn.
func (c *checker) conflict(report func(path, code, what, fix string, also ...string), code, first, second, what, fix string) {
	at, also := c.either(first, second)
	if c.Written(also) {
		report(at, code, what, fix, also)
		return
	}
	report(at, code, what+"; "+also+" is not written, so its default holds", fix)
}

func (c *checker) urls() {
	const url, file = "database.url", "database.url_file"
	if c.Written(url) && c.Written(file) {
		c.Refuse(file, "bad-choice", "database has url and url_file, and it takes one of them", "keep one of them", url)
	}
	database := c.cfg.Database
	for _, u := range []struct {
		path string
		url  Secret
	}{{url, database.URL}, {"database.admin_url", database.AdminURL}, {"database.listen_url", database.ListenURL}} {
		if !c.Sound(u.path) {
			continue
		}
		if near := misspelled(u.url.Reveal()); near != "" {
			c.Warn(u.path, "odd-parameter", fmt.Sprintf("%s has a parameter that is not known and looks like %s; the server would be asked to set it", u.path, near),
				fmt.Sprintf("did you mean %q?", near))
		}
	}
}

// restored refuses one column of a table twice, unless each entry speaks of rows of its own.
func (c *checker) restored() {
	first := map[RestoreCursor]string{}
	for i, cursor := range c.cfg.Restore.Cursors {
		entry := "restore.cursors[" + strconv.Itoa(i) + "]"
		path := entry + ".table"
		if !c.Sound(path) || !c.Sound(entry+".column") {
			continue
		}
		if schema, _, _ := strings.Cut(cursor.Table, "."); schema == c.cfg.Database.Schema {
			c.Refuse(path, "own-table", fmt.Sprintf("%s is %s, a table of the engine's own", path, c.Quoted(path)),
				"remove the entry: a finalize moves the engine's cursors by itself")
			continue
		}
		key := RestoreCursor{Table: cursor.Table, Column: cursor.Column, Where: cursor.Where}
		if before, known := first[key]; known {
			c.Refuse(path, "duplicate-cursor", fmt.Sprintf("%s names the rows that another entry names: %s, column %s", entry, c.Quoted(path), cursor.Column),
				"remove one of the two, or give each its own where", before)
			continue
		}
		first[key] = path
	}
}

// names refuses two consumers of one name: they would share one cursor, and each would lose the events that
// the other took. Names that only a careful look tells apart are a warning.
func (c *checker) names() {
	first, like := map[string]string{}, map[string]string{}
	for i, consumer := range c.cfg.Consumers {
		path := in(i, "name")
		if !c.Sound(path) {
			continue
		}
		if before, known := first[consumer.Name]; known && c.At(path) == c.At(before) { // behind an anchor
			entry := "consumers[" + strconv.Itoa(i) + "]"
			c.RefuseUse(entry, "duplicate-name", fmt.Sprintf("%s takes its name, %s, from another consumer; both would move one cursor", entry, c.Quoted(path)),
				"give this one a name of its own", before)
			continue
		} else if known {
			c.Refuse(path, "duplicate-name", fmt.Sprintf("%s is %s, and so is that of another consumer; both would move one cursor", path, c.Quoted(path)),
				"give one of the two another name", before)
			continue
		}
		first[consumer.Name] = path
		key := folded(consumer.Name)
		if before, known := like[key]; known {
			c.Warn(path, "similar-name", fmt.Sprintf("%s is %s, and %s is %s: they differ only in - and _", path, c.Quoted(path), before, c.Quoted(before)),
				"give one of the two a name that nobody takes for the other", before)
			continue
		}
		like[key] = path
	}
}

// kinds warns of two consumers whose jobs one worker gets: that may be meant, and only the tag tells the
// jobs apart.
func (c *checker) kinds() {
	first := map[string]int{}
	others := map[string]int{}
	for i, consumer := range c.cfg.Consumers {
		if !c.Sound(in(i, "job.kind")) || !c.Sound(in(i, "name")) {
			continue
		}
		if _, known := first[consumer.Job.Kind]; !known {
			first[consumer.Job.Kind] = i
			continue
		}
		others[consumer.Job.Kind]++
	}
	for i, consumer := range c.cfg.Consumers {
		before, path := first[consumer.Job.Kind], in(i, "job.kind")
		if others[consumer.Job.Kind] == 0 || before == i || !c.Sound(path) || !c.Sound(in(i, "name")) {
			continue
		}
		also := in(before, "job.kind")
		if c.At(path) == c.At(also) {
			continue // written once, behind an anchor: it is meant
		}
		what := fmt.Sprintf("%s is %s, and so is %s", path, c.Quoted(path), also)
		if n := others[consumer.Job.Kind] - 1; n > 0 {
			what += fmt.Sprintf(" and that of %d more", n)
		}
		c.Warn(path, "same-kind", what+": one worker gets the jobs of all of them, and only their tags differ",
			"give each a kind of its own, unless one worker is meant for all", also)
		others[consumer.Job.Kind] = 0 // once for each kind
	}
}

// ages holds what tells of a late consumer between the poll, which may make it a little late, and the
// retention, which makes it lose events.
func (c *checker) ages() {
	const retention, alerts, polls = "sync.event_retention", "consumer.pending_alert_after", "consumer.poll_interval"
	late := func(alert string, after time.Duration) {
		if c.usable(alert) && c.usable(retention) && after >= c.cfg.Sync.EventRetention {
			c.conflict(c.Refuse, "late-alert", alert, retention, alert+" is not below "+retention+": events would be dropped before their consumer counts as late",
				"make "+alert+" shorter, with time left to help, or "+retention+" longer")
		}
	}
	slow := func(poll, alert string, every, after time.Duration) {
		if c.usable(poll) && c.usable(alert) && every >= after {
			c.conflict(c.Warn, "slow-poll", poll, alert, poll+" is not below "+alert+": when a wake is lost, the consumer counts as late before it looks at the log again",
				"make "+poll+" shorter, or "+alert+" longer")
		}
	}
	late(alerts, c.cfg.Consumer.PendingAlertAfter)
	slow(polls, alerts, c.cfg.Consumer.PollInterval, c.cfg.Consumer.PendingAlertAfter)
	for i, consumer := range c.cfg.Consumers {
		alert, poll := c.source(i, "pending_alert_after", "pending_alert_after"), c.source(i, "poll_interval", "poll_interval")
		if alert != alerts {
			late(alert, consumer.PendingAlertAfter)
		}
		if alert != alerts || poll != polls {
			slow(poll, alert, consumer.PollInterval, consumer.PendingAlertAfter)
		}
	}
}

// spare is what a process does beside rounds, each with a connection of its own: it wakes workers, reads the
// state of the consumers, and makes partitions. LISTEN has a connection outside of the pool, and so have the
// programs that work the jobs.
const spare = 3

// pool warns of rounds that wait for each other.
func (c *checker) pool() {
	const path, most = "database.pool_max_conns", 1000
	need := len(c.cfg.Consumers) + spare
	if !c.Sound(path) || c.cfg.Database.PoolMaxConns >= need || need > most {
		return
	}
	c.Warn(path, "small-pool", fmt.Sprintf("%s is %s, and consumers has %d entries: with fewer than %d connections rounds wait for each other (one for each consumer, and three for waking workers, reading states and making partitions)",
		path, c.Quoted(path), len(c.cfg.Consumers), need), fmt.Sprintf("write %d, or remove the key: the size is then chosen so", need), "consumers")
}

// partition warns of a batch that no partition can hold.
func (c *checker) partition() {
	const path = "sync.event_log_partition_size"
	if !c.usable(path) {
		return
	}
	check := func(batch string, size int) {
		if c.usable(batch) && int64(size) > c.cfg.Sync.EventLogPartitionSize {
			at, also := c.either(path, batch)
			c.Warn(at, "small-partition", fmt.Sprintf("%s is below %s: every full round would read from several partitions", path, batch),
				"make "+path+" a thousand times the batch, or more", also)
		}
	}
	largest, size := "consumer.batch_size", c.cfg.Consumer.BatchSize
	for i, consumer := range c.cfg.Consumers {
		if own := in(i, "batch"); c.Sound(own) && consumer.Batch > size {
			largest, size = own, consumer.Batch
		}
	}
	check(largest, size)
}
