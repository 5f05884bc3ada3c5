// SPDX-License-Identifier: Apache-2.0

// Package config owns consumers.yaml: what may stand in it, and what its values mean together.
//
//	text --document--> Config + positions --checks--> Config, or problems
//
// A key is declared once, as a field of a struct in this file, with the tags that package document reads:
// decoding, defaults, ranges, did-you-mean lists, the JSON Schema and the reference page come from them.
// The formats of names and queries and the checks of one value against another are here too.
//
// It knows no database and opens no connection.
package config

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"example.com/bothy/engine/document"
	"example.com/bothy/engine/problem"
)

// Config is a checked consumers.yaml. Every value is inside the range that its tag names, and every
// default is filled in.
type Config struct {
	Version   int        `yaml:"version" validate:"required,eq=1" since:"0.1" doc:"The version of this file's grammar. It is 1."`
	Database  Database   `yaml:"database" since:"0.1" doc:"How the engine reaches PostgreSQL, and where it lives there."`
	Sync      Sync       `yaml:"sync" since:"0.1" doc:"The event log."`
	Consumer  Defaults   `yaml:"consumer" since:"0.1" doc:"What every consumer uses that does not say otherwise."`
	Jobs      Jobs       `yaml:"jobs" since:"0.1" doc:"The River tables that jobs are inserted into."`
	Shutdown  Shutdown   `yaml:"shutdown" since:"0.1" doc:"How the engine stops."`
	HTTP      HTTP       `yaml:"http" since:"0.1" doc:"What the engine serves over HTTP: its health and its metrics."`
	Log       Log        `yaml:"log" since:"0.1" doc:"What the engine writes about itself."`
	Restore   Restore    `yaml:"restore" since:"0.1" doc:"What engine restore finalize does with what is not the engine's own."`
	Consumers []Consumer `yaml:"consumers" validate:"required,min=1,max=5000,dive" since:"0.1" doc:"The consumers of the event log, each with a cursor of its own."`

	tree *document.Tree
}

// Database says how the engine reaches PostgreSQL. Absent URLs leave the choice to the standard PG*
// environment variables.
type Database struct {
	URL                       Secret        `yaml:"url" validate:"omitempty,database_url" since:"0.1" doc:"The connection of the server process: a postgres:// URL or a key=value string. Absent: the PG* environment variables."`
	URLFile                   string        `yaml:"url_file" validate:"omitempty,file_path" since:"0.1" doc:"A file that holds the url, such as a mounted secret. It is read at start, without its last line end; a relative path is seen from the folder of this file. Not together with url."`
	AdminURL                  Secret        `yaml:"admin_url" validate:"omitempty,database_url" since:"0.1" doc:"The connection of commands that change the schema. Absent: url."`
	ListenURL                 Secret        `yaml:"listen_url" validate:"omitempty,database_url" since:"0.1" doc:"A direct connection for LISTEN, where url goes through a transaction-mode pooler. Absent: url."`
	Schema                    string        `yaml:"schema" default:"bothy" validate:"schema_name" since:"0.1" doc:"The schema of the engine's own tables."`
	RestoreGuard              string        `yaml:"restore_guard" default:"on" validate:"oneof=on off" since:"0.1" doc:"Whether the engine does no work while the database is not the one whose history the cursors follow, or that cannot be read. Turn it off only where a failover loses no committed transaction: after any other, or a restore, events are skipped and numbers are used twice without a word."`
	Environment               string        `yaml:"environment" validate:"omitempty,label" since:"0.1" doc:"A label of this installation, such as production. A migration writes it to a database that has none; with another one there the engine does no work, since it may be a copy or the wrong database."`
	Roles                     Roles         `yaml:"roles" since:"0.1" doc:"The database roles that grants are made for."`
	StatementTimeout          time.Duration `yaml:"statement_timeout" default:"30s" validate:"min=100ms,max=1h" since:"0.1" doc:"The longest that one statement may run."`
	LockTimeout               time.Duration `yaml:"lock_timeout" default:"5s" validate:"min=10ms,max=1h" since:"0.1" doc:"The longest that one statement may wait for a lock."`
	IdleInTxTimeout           time.Duration `yaml:"idle_in_tx_timeout" default:"30s" validate:"min=100ms,max=1h" since:"0.1" doc:"The longest that a transaction of the engine may sit idle before the server ends it."`
	PoolMaxConns              int           `yaml:"pool_max_conns" validate:"omitempty,min=2,max=1000" unit:"connections" since:"0.1" doc:"The size of the connection pool: best one for each consumer, and three more for waking workers, for reading the state of the consumers and for making partitions. Programs that work the jobs have pools of their own. Absent (0 in Go): chosen so."`
	ListenReconnectBackoffCap time.Duration `yaml:"listen_reconnect_backoff_cap" default:"30s" validate:"min=100ms,max=1h" since:"0.1" doc:"The longest pause between two attempts to reconnect the LISTEN connection."`
}

// Guarded reports whether restore_guard is on.
func (d Database) Guarded() bool { return d.RestoreGuard != "off" }

// Admin is admin_url, or url when it is absent.
func (d Database) Admin() Secret {
	if d.AdminURL != "" {
		return d.AdminURL
	}
	return d.URL
}

// Listen is listen_url, or url when it is absent.
func (d Database) Listen() Secret {
	if d.ListenURL != "" {
		return d.ListenURL
	}
	return d.URL
}

// Roles names the roles of the database that grants are made for. Two of them may be the same role.
type Roles struct {
	Owner     string   `yaml:"owner" validate:"omitempty,role_name" since:"0.1" doc:"The role that owns the schema and migrates it. Absent: the role that connects."`
	App       string   `yaml:"app" validate:"omitempty,role_name" since:"0.1" doc:"The role that the server process connects as. Absent: the role that connects."`
	Producers []string `yaml:"producers" validate:"omitempty,max=100,dive,role_name" since:"0.1" doc:"The roles that may append events and nothing else."`
}

// Sync describes the event log.
type Sync struct {
	EventRetention        time.Duration `yaml:"event_retention" default:"720h" validate:"min=1h,max=87600h" since:"0.1" doc:"How long events are kept at least. Older ones are dropped with their partition; retention_policy says what holds for those that a consumer has not read. A shorter time takes effect with engine migrate up."`
	RetentionPolicy       string        `yaml:"retention_policy" default:"skip" validate:"oneof=skip hold" since:"0.1" doc:"What happens to events older than event_retention that a declared consumer has not read. skip keeps them for another hour, and up to another event_retention while a consumer that lacks them makes headway; then they are dropped and the consumer skips them. hold keeps them until they are read, however long that takes. Both warn first."`
	EventLogPartitionSize int64         `yaml:"event_log_partition_size" default:"1000000" validate:"min=10,max=1000000000" unit:"events" since:"0.1" doc:"How many numbers one partition of the event log holds."`
	PartitionsAhead       int           `yaml:"partitions_ahead" default:"4" validate:"min=1,max=100" unit:"partitions" since:"0.1" doc:"How many empty partitions are kept ready after the one in use."`
	Notify                string        `yaml:"notify" default:"on" validate:"oneof=on off" since:"0.1" doc:"Whether an append wakes the consumers at once. Without it they find events when they poll, and appends are a little cheaper."`
}

// Holds reports whether events wait for the declared consumers however old they get.
func (s Sync) Holds() bool { return s.RetentionPolicy == "hold" }

// Notifies reports whether notify is on.
func (s Sync) Notifies() bool { return s.Notify != "off" }

// Defaults are what a consumer uses that does not say otherwise.
type Defaults struct {
	BatchSize         int           `yaml:"batch_size" default:"100" validate:"min=1,max=10000" unit:"events" since:"0.1" doc:"The most events that one round reads."`
	PollInterval      time.Duration `yaml:"poll_interval" default:"5s" validate:"min=10ms,max=1h" since:"0.1" doc:"How often a consumer looks for events when nothing wakes it."`
	PendingAlertAfter time.Duration `yaml:"pending_alert_after" default:"15m" validate:"min=1s,max=8760h" since:"0.1" doc:"How old the oldest event that a consumer has not read may get before it counts as late. Keep it well below sync.event_retention: that is the time left to help before events are lost."`
	MaxJobsPerRound   int           `yaml:"max_jobs_per_round" default:"20000" validate:"min=1,max=1000000" unit:"jobs" since:"0.1" doc:"A round that reaches this many jobs is cut short. The event that reaches it is still taken whole, so that a round may insert more by the jobs of one event."`
}

// Jobs describes the River tables that jobs are inserted into. They belong to the user.
type Jobs struct {
	Schema  string `yaml:"schema" default:"public" validate:"river_schema" since:"0.1" doc:"The schema that holds River's tables."`
	Migrate bool   `yaml:"migrate" default:"false" since:"0.1" doc:"Whether migrating also creates and upgrades River's tables there."`
	UIURL   string `yaml:"ui_url" validate:"omitempty,page_url" since:"0.1" doc:"The address of a page that shows the jobs, such as an installation of River UI. The status page links to it."`
}

// Shutdown says how the engine stops.
type Shutdown struct {
	TotalTimeout time.Duration `yaml:"total_timeout" default:"25s" validate:"min=1s,max=1h" since:"0.1" doc:"The longest that a graceful stop may take. Keep it below the time that the process manager waits before it kills."`
}

// HTTP says what the engine serves over HTTP.
type HTTP struct {
	Listen     string `yaml:"listen" validate:"omitempty,listen_address" since:"0.1" doc:"The address of the listener that serves /metrics, /healthz and /readyz, and /status in the roles api and all, such as 127.0.0.1:9464, or :9464 for every interface. Absent: nothing is served."`
	AdminToken Secret `yaml:"admin_token" validate:"omitempty,admin_token" since:"0.1" doc:"The token that the status page asks for. Write it as a variable. Absent: /status answers 404."`
}

// Log says what the engine writes about itself.
type Log struct {
	Level  string `yaml:"level" default:"info" validate:"oneof=debug info warn error" since:"0.1" doc:"The mildest level that is written."`
	Format string `yaml:"format" default:"text" validate:"oneof=text json" since:"0.1" doc:"Lines for people, or one JSON object per line."`
}

// Restore says what finalizing a restore does beyond the engine's own tables.
type Restore struct {
	Cursors []RestoreCursor `yaml:"cursors" validate:"omitempty,min=1,max=100,dive" since:"0.1" doc:"Your own tables that hold positions in the event log: finalizing a restore moves them to the head, in the same transaction as those of the engine."`
	Jobs    string          `yaml:"jobs" default:"cancel" validate:"oneof=cancel keep" since:"0.1" doc:"What happens to restored jobs of the engine's that are not finished. Their events lie before the restore point, and a worker may have done the work after it: cancel cancels them, keep leaves them to workers that compare the epoch of a job."`
}

// RestoreCursor is one table with positions in the log.
type RestoreCursor struct {
	Table  string `yaml:"table" validate:"required,table_name" since:"0.1" doc:"The table, with its schema."`
	Column string `yaml:"column" validate:"required,column_name" since:"0.1" doc:"The column that holds the number of the last event. A NULL in it is left alone."`
	Where  string `yaml:"where" validate:"omitempty,condition" since:"0.1" doc:"A SQL condition on the rows that hold such a position. Absent: all rows."`
}

// Consumer is one entry of consumers. Batch, PollInterval, PendingAlertAfter and MaxJobsPerRound hold the effective values:
// its own, or those of the section consumer.
type Consumer struct {
	Name              string        `yaml:"name" validate:"required,consumer_name" since:"0.1" doc:"The name of the consumer: the key of its cursor and the tag of its jobs. A renamed consumer is a new consumer."`
	Types             []string      `yaml:"types" validate:"omitempty,min=1,max=100,dive,glob" since:"0.1" doc:"Which events get jobs: patterns on the event type, where * stands for any run of characters. Absent: all events."`
	Batch             int           `yaml:"batch" inherit:"consumer.batch_size" validate:"omitempty,min=1,max=10000" unit:"events" since:"0.1" doc:"The most events that one round of this consumer reads."`
	PollInterval      time.Duration `yaml:"poll_interval" inherit:"consumer.poll_interval" validate:"omitempty,min=10ms,max=1h" since:"0.1" doc:"How often this consumer looks for events when nothing wakes it."`
	PendingAlertAfter time.Duration `yaml:"pending_alert_after" inherit:"consumer.pending_alert_after" validate:"omitempty,min=1s,max=8760h" since:"0.1" doc:"How old the oldest event that this consumer has not read may get before it counts as late."`
	MaxJobsPerRound   int           `yaml:"max_jobs_per_round" inherit:"consumer.max_jobs_per_round" validate:"omitempty,min=1,max=1000000" unit:"jobs" since:"0.1" doc:"How many jobs end a round of this consumer. The event that reaches it is still taken whole."`
	OnFailure         string        `yaml:"on_failure" default:"stall" validate:"oneof=stall quarantine" since:"0.1" doc:"What becomes of an event that the recipients rule fails on. stall: the consumer stands still and tries again until it passes. quarantine: the event is set aside, and the consumer goes on behind it; engine quarantine lists, retries and drops such events. What is no fault of an event (the connection, a timeout, a missing table or right) always stalls."`
	After             int           `yaml:"after" validate:"omitempty,min=1,max=1000" unit:"rounds" since:"0.1" doc:"How many rounds in a row fail before the event that they fail on is looked for and set aside. Only with on_failure: quarantine. Absent (0 in Go): 5."`
	Job               Job           `yaml:"job" validate:"required" since:"0.1" doc:"The River job that each target becomes. Two consumers may use the same kind."`
	Recipients        Recipients    `yaml:"recipients" validate:"required" word:"none" apart:"give the other a consumer of its own" since:"0.1" doc:"Who each event is for: the word none, or exactly one of the rules field, list, query and handler."`
}

// Job describes the River job that each target becomes.
type Job struct {
	Kind        string `yaml:"kind" validate:"required,job_kind" since:"0.1" doc:"The kind of the job: what a River worker registers for."`
	Queue       string `yaml:"queue" default:"default" validate:"queue_name" since:"0.1" doc:"The River queue of the job."`
	MaxAttempts int    `yaml:"max_attempts" default:"25" validate:"min=1,max=32767" unit:"attempts" since:"0.1" doc:"How often River tries the job before it gives up."`
	Priority    int    `yaml:"priority" default:"1" validate:"min=1,max=4" since:"0.1" doc:"River's priority of the job: 1 is the most urgent, 4 the least."`
}

// Rule is the kind of a recipient rule.
type Rule string

// The recipient rules. The zero value is none of them.
const (
	RuleNone    Rule = "none"    // one job per event, with an empty recipient
	RuleField   Rule = "field"   // one per element of a column of the event
	RuleList    Rule = "list"    // one per entry of a fixed list
	RuleQuery   Rule = "query"   // what a SELECT over the relation batch gives
	RuleHandler Rule = "handler" // what a Go function of an embedding program gives
)

// Recipients is a recipient rule. Only the field that Rule names is set.
type Recipients struct {
	Rule    Rule     `yaml:"-"`
	Field   string   `yaml:"field" validate:"omitempty,oneof=type resource resource_id audience" since:"0.1" doc:"A column of the event. The text column gives one target, the array column audience one per element."`
	List    []string `yaml:"list" validate:"omitempty,min=1,max=1000,dive,recipient" since:"0.1" doc:"A fixed list of recipients: each event gives one target per entry."`
	Query   string   `yaml:"query" validate:"omitempty,rule_query" since:"0.1" doc:"One SELECT over the relation batch (the events of the round) that gives the columns seq and recipient. It runs once per round, and it may not write or lock."`
	Handler string   `yaml:"handler" validate:"omitempty,handler_name" since:"0.1" doc:"The name of a Go function that a program which embeds the engine has registered."`
}

// Choose is called by the reader with the key, or the word, that is written.
func (r *Recipients) Choose(key string) { r.Rule = Rule(key) }

// Secret is a text that must not be seen.
type Secret = document.Secret

// File is the name of the file as the caller gave it.
func (c *Config) File() string { return c.tree.File() }

// Names lists the declared consumers in the order of the file.
func (c *Config) Names() []string {
	names := make([]string, len(c.Consumers))
	for i, consumer := range c.Consumers {
		names[i] = consumer.Name
	}
	return names
}

// At is where the value of a path such as consumers[2].job.kind is written. A value that is not in the
// file (a default) is at its nearest parent that is, at last the start of the file.
func (c *Config) At(path string) problem.Position { return c.tree.At(path) }

// KeyAt is where the key of a list such as consumers is written.
func (c *Config) KeyAt(path string) problem.Position { return c.tree.KeyAt(path) }

// Inside is the place of the character of a text with the number offset, counted from 0 in characters of
// the value as it stands in the Config: where PostgreSQL points to inside a query.
func (c *Config) Inside(path string, offset int) problem.Position {
	if strings.HasSuffix(path, ".recipients.query") {
		text := c.tree.Text(path)
		offset += utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeftFunc(text, unicode.IsSpace))
	}
	return c.tree.Inside(path, offset)
}

// Written reports whether the file gives a value to a path such as sync.notify, so that it is no default.
func (c *Config) Written(path string) bool { return c.tree.Written(path) }
