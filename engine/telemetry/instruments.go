// SPDX-License-Identifier: Apache-2.0

package telemetry

import "strings"

// Kind is what an instrument measures. The zero value is none.
type Kind string

// The kinds.
const (
	Gauge     Kind = "gauge"     // a value of now
	Counter   Kind = "counter"   // only grows, and begins at 0 with the process
	Histogram Kind = "histogram" // a distribution
)

// The attributes of metrics. Their values come from closed sets, so that no event, recipient or error text can
// make a series: the consumers of the configuration and of the cursor table, the ends of the round table, the
// reasons of readiness.
const (
	AttrConsumer = "bothy.consumer.name"
	AttrEnd      = "bothy.round.end"
	AttrReason   = "bothy.not_ready.reason"
)

// Source is where the value of an instrument comes from.
type Source string

// The sources.
const (
	FromDatabase Source = "database" // the newest observation; no series while there is no fresh one
	FromRounds   Source = "rounds"   // the rounds of this process; no series in role api
	FromProcess  Source = "process"  // what the process knows of itself; always there
)

// Instrument is the declaration of one metric. The instruments, the reference page and the tests of alerts and
// dashboards are made from it.
type Instrument struct {
	Name       string
	Kind       Kind
	Unit       string // as OpenTelemetry writes it: s, or a word in braces; empty for a switch
	Attributes []string
	Source     Source
	Means      string
}

// The instruments.
const (
	lag               = "bothy.event.consumer.lag"
	pendingAge        = "bothy.event.consumer.pending_age"
	pendingAlertAfter = "bothy.event.consumer.pending_alert_after"
	rounds            = "bothy.event.consumer.rounds"
	roundDuration     = "bothy.event.consumer.round_duration"
	events            = "bothy.event.consumer.events"
	jobs              = "bothy.event.consumer.jobs"
	lost              = "bothy.event.consumer.lost"
	quarantined       = "bothy.event.consumer.quarantined"
	lastEnd           = "bothy.event.consumer.last_end"
	sinceSuccess      = "bothy.event.consumer.since_success"
	listenerConnected = "bothy.event.listener.connected"
	logHead           = "bothy.event.log.head"
	headroom          = "bothy.event.log.headroom"
	headroomWanted    = "bothy.event.log.headroom_wanted"
	held              = "bothy.event.log.held"
	clockDrift        = "bothy.database.clock_drift"
	observationAge    = "bothy.observation.age"
	ready             = "bothy.ready"
	notReady          = "bothy.not_ready"
	configDigest      = "bothy.config.digest"
	startTime         = "bothy.engine.start_time"
)

// Instruments are all metrics of the engine, in the order of the reference page.
func Instruments() []Instrument {
	consumer, perEnd := []string{AttrConsumer}, []string{AttrConsumer, AttrEnd}
	return []Instrument{
		{lag, Gauge, "{event}", consumer, FromDatabase, "How many events the consumer has still to see: the head of the log minus its cursor, never below 0. For every cursor of the database, declared or not."},
		{pendingAge, Gauge, "s", consumer, FromDatabase, "How long the oldest event that the consumer has not processed has waited, by the clock of the database, never below 0; 0 when it is at the head. `sync.event_retention` is a time, so this is what an alert compares."},
		{pendingAlertAfter, Gauge, "s", consumer, FromProcess, "The declared `pending_alert_after` of the consumer: the pending age from which it counts as late."},
		{rounds, Counter, "{round}", perEnd, FromRounds, "Rounds by how they ended."},
		{roundDuration, Histogram, "s", consumer, FromRounds, "How long the rounds took that did work or failed. Idle and locked rounds are left out: there are many, and they would hide the others."},
		{events, Counter, "{event}", consumer, FromRounds, "Events processed: their jobs and the cursor are committed."},
		{jobs, Counter, "{job}", consumer, FromRounds, "Jobs inserted by rounds, for the recipients that a rule gave. What a handler inserts itself is not counted."},
		{lost, Counter, "{event}", consumer, FromRounds, "Events that retention removed before the consumer saw them."},
		{quarantined, Gauge, "{event}", consumer, FromDatabase, "Events that the consumer failed on and has set aside: they have no jobs until they are retried."},
		{lastEnd, Gauge, "", perEnd, FromRounds, "1 for the end of the newest round of the consumer in this process. Rounds that ended `locked` or `stopped` say nothing of the consumer and are passed over."},
		{sinceSuccess, Gauge, "s", consumer, FromRounds, "The time since a round of the consumer last ended well in this process (`processed`, `lost` or `idle`), or since its first round when none has."},
		{listenerConnected, Gauge, "", nil, FromRounds, "1 while the connection listens that wakes the consumers, else 0: they poll. No series where `sync.notify` is off."},
		{logHead, Gauge, "{event}", nil, FromDatabase, "The head of the log: the number of its newest event."},
		{headroom, Gauge, "{event}", nil, FromDatabase, "How many numbers above the head have a partition that was made ahead."},
		{headroomWanted, Gauge, "{event}", nil, FromProcess, "The headroom below which the engine makes partitions: half of `sync.partitions_ahead` times `sync.event_log_partition_size`."},
		{held, Gauge, "s", nil, FromDatabase, "For how long partitions older than `sync.event_retention` have been kept because consumers have still to read them; 0 when none is."},
		{clockDrift, Gauge, "s", nil, FromDatabase, "The clock of the database minus the clock of this process. No age of another metric mixes the two."},
		{observationAge, Gauge, "s", nil, FromProcess, "The age of the newest successful observation of the database, or the time since the process began to observe when there is none."},
		{ready, Gauge, "", nil, FromProcess, "1 when `/readyz` answers 200, else 0."},
		{notReady, Gauge, "", []string{AttrReason}, FromProcess, "1 for each reason for which the process is not ready, 0 for the others."},
		{configDigest, Gauge, "", nil, FromProcess, "A number that is made from the effective configuration, without its secrets. Processes with different numbers run with different configurations."},
		{startTime, Gauge, "s", nil, FromProcess, "When the process began to observe, in seconds since 1970."},
	}
}

// Exposed is the name of the metric on the Prometheus page: underscores, the unit, and the ending of a counter.
// A histogram has several series; theirs begin with this.
func (i Instrument) Exposed() string {
	name := strings.ReplaceAll(i.Name, ".", "_")
	if i.Unit == "s" {
		name += "_seconds"
	}
	if i.Kind == Counter {
		name += "_total"
	}
	return name
}

// Series are the names of all series of the instrument on the Prometheus page.
func (i Instrument) Series() []string {
	name := i.Exposed()
	if i.Kind == Histogram {
		return []string{name + "_bucket", name + "_count", name + "_sum"}
	}
	return []string{name}
}

// Label is the name of an attribute on the Prometheus page.
func Label(attribute string) string { return strings.ReplaceAll(attribute, ".", "_") }
