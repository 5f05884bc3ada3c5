// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
)

func statusCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "prints how far each consumer is",
		Long: `status prints the state of the log and a line for each consumer:

  CURSOR   the number of the last event that it has processed
  HEAD     the number of the newest event of the log
  LAG      how many events it still has to see
  PENDING  how long the oldest of them has waited, and "late" when that is longer than LATE AFTER
  LATE     pending_alert_after: from when it counts as late
  END      how its newest round ended, as far as the engine at http.listen on this machine knows, and
           how many events are set aside (see engine quarantine list)

A consumer that is declared and has never run has no cursor yet; its first worker puts it at the head. One
that has a cursor and is not declared any more is marked with *.

--watch looks again and again until it is interrupted. On a terminal it draws in place; elsewhere it prints a
block when something has changed. --format json prints one object per look:

  {"at", "head", "partitions": {"count", "size", "headroom"},
   "identity": {"state": "same"|"restored"|"unknown", "stored": {"system", "timeline"}, "current": {...}, "epoch", "held": [...]},
   "consumers": [{"name", "declared", "cursor", "head", "lag", "pending_seconds", "pending_alert_after_seconds",
                  "late", "quarantined", "end", "moved_at"}]}

Numbers that are not known are null.`,
		Example: `  engine status
  engine status --watch
  engine status --format json | jq '.consumers[] | select(.late)'`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	watch := cmd.Flags().Bool("watch", false, "look again and again")
	every := cmd.Flags().Duration("interval", time.Second, "how often --watch looks: a `DURATION`")
	format := cmd.Flags().String("format", "text", "how it is printed: `text|json`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *format != "text" && *format != "json" {
			return usagef("--format is %q: write text or json", *format)
		}
		if *every < 100*time.Millisecond {
			return usagef("--interval is %v: write 100ms or more", *every)
		}
		err := withEngine(cmd, *path, env, func(cfg *config.Config, e *engine.Engine) error {
			screen := newScreen(cmd.OutOrStdout(), *format == "json", *watch && isTerminal(cmd.OutOrStdout()))
			look := func() error {
				o, err := e.Observe(cmd.Context())
				if err != nil {
					return err
				}
				held, err := e.Held(cmd.Context(), o)
				if err != nil {
					return err
				}
				return screen.show(statusOf(cfg, o, held, ends(cmd.Context(), cfg)))
			}
			if !*watch {
				return look()
			}
			return watching(cmd.Context(), *every, look)
		})
		if *watch && cmd.Context().Err() != nil {
			return nil //nolint:nilerr // an interrupt is how watching ends, also while it connects
		}
		return err
	}
	return cmd
}

// watching looks until it is interrupted, which is how it is meant to end.
func watching(ctx context.Context, every time.Duration, look func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := look(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ends asks the engine on this machine how the newest rounds ended. There need not be one.
func ends(ctx context.Context, cfg *config.Config) map[string]string {
	if cfg.HTTP.Listen == "" {
		return nil
	}
	url, err := api.URL(cfg.HTTP.Listen, "/readyz")
	if err != nil {
		return nil
	}
	ready, err := api.AskReadiness(ctx, url)
	if err != nil {
		return nil
	}
	return ready.Ends
}

// withEngine runs look with an engine that is open: its schema fits, and nothing is started.
func withEngine(cmd *cobra.Command, path string, env lookupEnv, look func(*config.Config, *engine.Engine) error) error {
	cfg, err := loadConfig(cmd, path, env)
	if err != nil {
		return err
	}
	e, err := engine.Open(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	return look(cfg, e)
}

// The states of an identity.
const (
	identitySame     = "same"
	identityRestored = "restored"
	identityUnknown  = "unknown"
)

type statusIdentity struct {
	System   int64 `json:"system,string"`
	Timeline int64 `json:"timeline"`
}

// statusOrigin says whether the database is the one whose history the cursors follow.
type statusOrigin struct {
	State   string          `json:"state"`
	Stored  *statusIdentity `json:"stored"`
	Current *statusIdentity `json:"current"`
	Epoch   string          `json:"epoch"`
	Held    []string        `json:"held"` // why no engine with this configuration does any work; the words of /readyz
	advice  string
}

// words says the same to a person.
func (o statusOrigin) words() string {
	switch {
	case len(o.Held) > 0:
		return "no engine with this configuration does any work (" + strings.Join(o.Held, ", ") + "): " + o.advice
	case o.State == identitySame:
		return "the database that the cursors follow"
	case o.State == identityRestored:
		return "restored or promoted, and not finalized; database.restore_guard is off, so rounds run all the same"
	default:
		return "not known: this role may not read it, or it was never stored"
	}
}

// status is one look, as it is printed.
type status struct {
	At         time.Time `json:"at"`
	Head       int64     `json:"head"`
	Partitions struct {
		Count    int   `json:"count"`
		Size     int64 `json:"size"`
		Headroom int64 `json:"headroom"`
	} `json:"partitions"`
	Identity  statusOrigin     `json:"identity"`
	Consumers []statusConsumer `json:"consumers"`
}

type statusConsumer struct {
	Name              string     `json:"name"`
	Declared          bool       `json:"declared"`
	Cursor            *int64     `json:"cursor"`
	Head              int64      `json:"head"`
	Lag               *int64     `json:"lag"`
	PendingSeconds    *float64   `json:"pending_seconds"`
	AlertAfterSeconds *float64   `json:"pending_alert_after_seconds"`
	Late              bool       `json:"late"`
	Quarantined       *int64     `json:"quarantined"`
	End               *string    `json:"end"`
	MovedAt           *time.Time `json:"moved_at"`
}

// statusOf puts together what is declared, what was seen and what is known of rounds: the declared consumers in the
// order of the file, then the others.
func statusOf(cfg *config.Config, o engine.Observation, held *engine.HeldError, ends map[string]string) status {
	s := status{At: o.At.UTC(), Head: o.Head}
	s.Partitions.Count, s.Partitions.Size, s.Partitions.Headroom = o.Partitions, o.PartitionSize, o.Headroom
	s.Identity.Epoch = o.Epoch
	s.Identity.State = identityUnknown
	if o.Stored.Known() {
		s.Identity.Stored = &statusIdentity{o.Stored.System, o.Stored.Timeline}
	}
	if o.Current.Known() {
		s.Identity.Current = &statusIdentity{o.Current.System, o.Current.Timeline}
	}
	if o.Stored.Known() && o.Current.Known() {
		s.Identity.State = identitySame
		if !o.Finalized() {
			s.Identity.State = identityRestored
		}
	}
	s.Identity.Held = []string{}
	if held != nil {
		s.Identity.advice = held.Advice
		for _, r := range held.Reasons {
			s.Identity.Held = append(s.Identity.Held, string(r))
		}
	}
	for _, declared := range cfg.Consumers {
		c := statusConsumer{Name: declared.Name, Declared: true, Head: o.Head, AlertAfterSeconds: new(declared.PendingAlertAfter.Seconds())}
		if at := slices.IndexFunc(o.Consumers, func(s engine.State) bool { return s.Name == declared.Name }); at >= 0 {
			c.stands(o.Consumers[at])
			c.Late = o.Consumers[at].PendingAge > declared.PendingAlertAfter
		}
		if end, known := ends[declared.Name]; known {
			c.End = &end
		}
		s.Consumers = append(s.Consumers, c)
	}
	for _, state := range o.Consumers {
		if !slices.Contains(cfg.Names(), state.Name) {
			c := statusConsumer{Name: state.Name, Head: o.Head}
			c.stands(state)
			s.Consumers = append(s.Consumers, c)
		}
	}
	return s
}

func (c *statusConsumer) stands(s engine.State) {
	c.Cursor, c.Lag, c.PendingSeconds, c.MovedAt = new(s.LastSeq), new(s.Lag()), new(s.PendingAge.Seconds()), new(s.UpdatedAt.UTC())
	c.Quarantined = new(s.Aside)
}
