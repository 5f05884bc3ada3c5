// SPDX-License-Identifier: Apache-2.0

// Package api owns what the engine serves over HTTP:
//
//	/metrics  the Prometheus page
//	/healthz  200 while the process is alive; restart it when this does not answer
//	/readyz   200 when it does its work, else 503; the body says why not
//
// and what it is handed beside them.
//
// Nothing here asks the database, so an answer takes as long in an outage as on any other day, and nothing here
// shows an event. It refuses slow clients: each has a few seconds for its request and for its answer.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// The limits of one request.
const (
	headerLimit = 5 * time.Second
	readLimit   = 10 * time.Second
	writeLimit  = 30 * time.Second
	idleLimit   = 2 * time.Minute
	headerBytes = 16 << 10
)

// Readiness is the body of /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"` // why it is not ready; empty when it is
	Role    string   `json:"role"`
	// Ends is the newest end of each consumer that has had a round in this process.
	Ends map[string]string `json:"ends"`
}

// Options say what is served.
type Options struct {
	Address   string
	Metrics   http.Handler
	Readiness func() Readiness
	More      map[string]http.Handler // by path; one that ends with / serves everything below
}

// Server is a listener with its connections.
type Server struct {
	server   http.Server
	listener net.Listener
	ended    chan error
}

// Listen opens the listener and serves until Stop.
func Listen(ctx context.Context, o Options) (*Server, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on http.listen: %w", err)
	}
	s := &Server{listener: listener, ended: make(chan error, 1), server: http.Server{
		Handler: Handler(o), ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit,
		WriteTimeout: writeLimit, IdleTimeout: idleLimit, MaxHeaderBytes: headerBytes,
	}}
	go func() { s.ended <- s.server.Serve(listener) }()
	return s, nil
}

// Address is where the server listens: with the port that it was given where the configuration says 0.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Stop lets the answers that are on their way arrive, until ctx ends, and closes the listener.
func (s *Server) Stop(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = s.server.Close()
	}
	if served := <-s.ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop the HTTP listener: %w", err)
	}
	return nil
}

// Handler serves the pages without a listener of its own.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.Metrics)
	for path, handler := range o.More {
		mux.Handle(path, handler)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w)
		_, _ = w.Write([]byte("alive\n")) // the client is gone when it fails
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready := o.Readiness()
		w.Header().Set("Content-Type", "application/json")
		unkept(w)
		if !ready.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(ready) // the client is gone when it fails
	})
	return mux
}

func plain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	unkept(w)
}

// unkept keeps an answer out of every cache: it says how things are now.
func unkept(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
