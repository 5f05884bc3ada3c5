// SPDX-License-Identifier: Apache-2.0

// Command bench measures the engine against what it stands on, all variants interleaved in one run on one
// private PostgreSQL with fsync on. It prints ratios: a time says something of a machine, a ratio says
// something of the engine.
//
//	go run ./cmd/bench              everything, a few minutes
//	go run ./cmd/bench -only round  only the parts whose name begins with round
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"

	"example.com/bothy/engine/devdb"
)

// part is one group of measurements.
type part struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

// bench is what the parts share.
type bench struct {
	server *devdb.Server
	repeat int
	out    *tabwriter.Writer
	missed int // goals
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	only := flag.String("only", "", "run only the parts whose name begins with `NAME`")
	repeat := flag.Int("repeat", 5, "how often each variant is measured; the median counts")
	flag.Parse()
	server, err := devdb.Start(ctx, devdb.Options{
		Durable: true, Fetch: true, Log: os.Stderr,
		Settings: map[string]string{"shared_buffers": "1GB", "max_wal_size": "4GB", "synchronous_commit": "on", "autovacuum": "off"},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer func() { _ = server.Stop() }()
	b := &bench{server: server, repeat: *repeat, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	fmt.Printf("PostgreSQL %s, fsync on, medians of %d interleaved repetitions\n", server.Version(), *repeat)
	for _, p := range []part{
		{"table", interpreter},
		{"validate", validate},
		{"round", rounds},
		{"latency", latency},
		{"append", appends},
		{"gauges", gauges},
		{"partitions", partitions},
		{"snapshot", snapshot},
		{"catchup", catchup},
	} {
		if !strings.HasPrefix(p.name, *only) {
			continue
		}
		fmt.Printf("\n%s\n", p.name)
		if err := p.run(ctx, b); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", p.name, err)
			return 1
		}
		_ = b.out.Flush()
	}
	if b.missed > 0 {
		fmt.Printf("\n%d goals missed\n", b.missed)
		return 1
	}
	return 0
}

// goal prints one measured number beside what it should reach.
func (b *bench) goal(what string, got float64, atLeast bool, want float64) {
	verdict, sign := "reached", "at least"
	if !atLeast {
		sign = "at most"
	}
	if (atLeast && got < want) || (!atLeast && got > want) {
		verdict = "MISSED"
		b.missed++
	}
	fmt.Fprintf(b.out, "  %s\t%.3g\tgoal %s %.3g\t%s\n", what, got, sign, want, verdict)
}

// note prints one measured number that has no goal.
func (b *bench) note(what string, got float64) { fmt.Fprintf(b.out, "  %s\t%.3g\t\t\n", what, got) }
