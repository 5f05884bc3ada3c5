// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"example.com/bothy/engine/devdb"
)

// A server that ends by itself ends the run, with the reason.
func TestWatchServer(t *testing.T) {
	t.Parallel()
	server, err := devdb.Start(t.Context(), devdb.Options{Fetch: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := devDB{server: server}.watch(t.Context())
	defer cancel()
	if err := interrupted(ctx); !strings.HasPrefix(err.Error(), "interrupted before") {
		t.Errorf("while the server runs: got %q, want an interruption", err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if err := interrupted(ctx); !strings.HasPrefix(err.Error(), "the private PostgreSQL has ended (") {
		t.Errorf("after the server has ended: got %q, want its end", err)
	}
}

// A run that is cancelled is no trouble of the server.
func TestWatchCancelled(t *testing.T) {
	t.Parallel()
	above, end := context.WithCancel(t.Context())
	ctx, cancel := devDB{}.watch(above)
	defer cancel()
	end()
	<-ctx.Done()
	if err := serverEnded(ctx); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

// Under nohup a hangup was ignored before the process began, and stays ignored.
func TestStopSignals(t *testing.T) { //nolint:paralleltest // signals belong to the process
	if got := stopSignals(); !slices.Contains(got, os.Signal(syscall.SIGHUP)) {
		t.Errorf("got %v, want SIGHUP among them", got)
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if got := stopSignals(); slices.Contains(got, os.Signal(syscall.SIGHUP)) || len(got) != 2 {
		t.Errorf("while SIGHUP is ignored: got %v, want SIGINT and SIGTERM", got)
	}
}
