// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package devdb

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// helperVar turns this test binary into a program that owns a server; its value is a helperOrder.
const helperVar = "BOTHY_DEVDB_TEST_HELPER"

type helperOrder struct {
	Base   string
	Data   string
	Untied bool
	Once   bool // stop at once, in place of waiting to be killed
	Umask  int  // 0 leaves it
}

type helperReport struct {
	Dir string
	PID int
	UID int
}

func TestMain(m *testing.M) {
	if order := os.Getenv(helperVar); order != "" {
		if err := helper(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	syscall.Umask(0o022) // TestTightUmask has another
	goleak.VerifyTestMain(m)
}

func helper(order string) error {
	var o helperOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	if o.Umask != 0 {
		syscall.Umask(o.Umask)
	}
	m := thisMachine()
	m.bases, m.untied = []string{o.Base}, o.Untied
	s, err := start(context.Background(), Options{Data: o.Data}, m)
	if err != nil {
		return err
	}
	report, err := json.Marshal(helperReport{Dir: s.Dir(), PID: s.process().cmd.Process.Pid, UID: os.Getuid()})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, string(report)); err != nil {
		return errors.Join(err, s.Stop())
	}
	if !o.Once {
		_, err = io.Copy(io.Discard, os.Stdin) // until killed, or until the test is gone
	}
	return errors.Join(err, s.Stop())
}

// startHelper runs this binary as a program of its own and returns when it has a server.
func startHelper(t *testing.T, binary string, o helperOrder, attr *syscall.SysProcAttr) (*exec.Cmd, helperReport) {
	t.Helper()
	order, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir, cmd.SysProcAttr = o.Base, attr
	cmd.Env = append(os.Environ(), helperVar+"="+string(order))
	cmd.Stderr = t.Output()
	if _, err := cmd.StdinPipe(); err != nil { // open until this test ends
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var report helperReport
	if err == nil {
		err = json.Unmarshal([]byte(line), &report)
	}
	if err != nil {
		t.Fatalf("helper said %q: %v", line, errors.Join(err, cmd.Wait()))
	}
	return cmd, report
}

// newBase is a folder for temporary servers that no other test uses and every account can enter.
func newBase(t *testing.T) string {
	t.Helper()
	parent := os.TempDir()
	if freeBytes(sharedMemory) >= enoughMemory {
		parent = sharedMemory
	}
	dir, err := os.MkdirTemp(parent, "bothy-test-") //nolint:usetesting // t.TempDir is closed to other accounts, and long for a socket
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// newMachine is this machine with a base of its own.
func newMachine(t *testing.T) machine {
	t.Helper()
	m := thisMachine()
	m.bases = []string{newBase(t)}
	return m
}

func mustStart(t *testing.T, o Options, m machine) *Server {
	t.Helper()
	o.Log = t.Output()
	s, err := start(t.Context(), o, m)
	if err != nil {
		t.Fatalf("start(%+v): %v", o, err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// ask runs statements on one connection and returns the one value that the last gives.
func ask(t *testing.T, url string, statements ...string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var got string
	for i, sql := range statements {
		if i == len(statements)-1 {
			err = conn.QueryRow(t.Context(), sql).Scan(&got)
		} else {
			_, err = conn.Exec(t.Context(), sql)
		}
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return got
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-limit.C:
			t.Fatalf("waited too long until %s", what)
		case <-tick.C:
		}
	}
}

// wantNoHomes says that nothing is left under a base but the gate.
func wantNoHomes(t *testing.T, base string) {
	t.Helper()
	entries, err := os.ReadDir(yard(base))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "gate" {
			t.Errorf("%s is left in %s", e.Name(), yard(base))
		}
	}
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	s := mustStart(t, Options{MaxConnections: 17, Settings: map[string]string{"work_mem": "7MB"}}, m)
	pid := s.process().cmd.Process.Pid

	got := ask(t, s.URL(Superuser, "postgres"), `SELECT concat_ws('|',
		current_setting('listen_addresses'), current_setting('max_connections'), current_setting('work_mem'),
		current_setting('fsync'), current_setting('server_encoding'), current_setting('timezone'),
		(SELECT datcollate FROM pg_database WHERE datname = 'postgres'),
		current_setting('server_version') LIKE '`+s.Version()+`%')`)
	if want := "|17|7MB|off|UTF8|UTC|C|t"; got != want {
		t.Errorf("settings of the server: got %q, want %q", got, want)
	}
	if info, err := os.Stat(s.Dir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder of the server: %v %v, want mode 0700: it is what keeps other users out", info.Mode(), err)
	}

	// A client that does not leave must not hold up the end.
	conn, err := pgx.Connect(t.Context(), s.URL(Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after Stop: %v, want that there is none", pid, err)
	}
	wantNoHomes(t, m.bases[0])
}

// A URL must carry any name of a user or a database.
func TestURL(t *testing.T) {
	t.Parallel()
	s := mustStart(t, Options{}, newMachine(t))
	const user, database = `Sam "ü" @:/?#%`, `a/b c?d#e%41`
	ask(t, s.URL(Superuser, "postgres"),
		"CREATE ROLE "+pgx.Identifier{user}.Sanitize()+" LOGIN",
		"CREATE DATABASE "+pgx.Identifier{database}.Sanitize(), "SELECT ''")
	url := s.URL(user, database)
	if got, want := ask(t, url, "SELECT current_user || '|' || current_database()"), user+"|"+database; got != want {
		t.Errorf("%s: got %q, want %q", url, got, want)
	}
	psql := filepath.Join(s.Bin(), "psql")
	if _, err := os.Stat(psql); err != nil {
		return // a fetched PostgreSQL has none
	}
	out, err := exec.CommandContext(t.Context(), psql, "-XAtc", "SELECT current_database()", url).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != database {
		t.Errorf("psql %s: got %q (%v), want %q", url, got, err, database)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	servers := make([]*Server, 3)
	errs := make([]error, len(servers))
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() { servers[i], errs[i] = start(t.Context(), Options{}, m) })
	}
	group.Wait()
	for i, s := range servers {
		if errs[i] != nil {
			t.Fatalf("start %d: %v", i, errs[i])
		}
		defer s.Stop()
		ask(t, s.URL(Superuser, "postgres"), fmt.Sprintf("CREATE TABLE t AS SELECT %d::text AS n", i), "SELECT n FROM t")
	}
	for i, s := range servers {
		if got, want := ask(t, s.URL(Superuser, "postgres"), "SELECT n FROM t"), fmt.Sprint(i); got != want {
			t.Errorf("server %d: got %q, want %q", i, got, want)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stop %d: %v", i, err)
		}
	}
	wantNoHomes(t, m.bases[0])
}

// A server that cannot start is a clear error with its own words, and leaves nothing.
func TestServerThatDies(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	_, err := start(t.Context(), Options{Settings: map[string]string{"work_mem": "much"}}, m)
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "work_mem": "much"`) {
		t.Errorf("start with work_mem=much: got %v, want the words of the server's log", err)
	}
	wantNoHomes(t, m.bases[0])
}

func TestCancelledStart(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := start(ctx, Options{}, m); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a cancelled context: got %v, %v, want context.Canceled", s, err)
	}
	wantNoHomes(t, m.bases[0])
}

func TestOptionsRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		o    Options
		want string
	}{
		{Options{Settings: map[string]string{"Listen_Addresses": "*"}}, `setting "Listen_Addresses" cannot be given`},
		{Options{Settings: map[string]string{"port=1 -c fsync": "on"}}, "is no name of a PostgreSQL setting"},
		{Options{MaxConnections: -1}, "max connections is -1"},
	} {
		m := newMachine(t)
		_, err := start(t.Context(), tc.o, m)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("start(%+v): got %v, want %q", tc.o, err, tc.want)
		}
		wantNoHomes(t, m.bases[0])
	}
}

func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	// The folder that go test builds in is closed to others.
	binary := filepath.Join(base, "helper")
	text, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.WriteFile(binary, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	open := filepath.Join(base, "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o1777)); err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"", filepath.Join(open, "data")} {
		cmd, got := startHelper(t, binary, helperOrder{Base: open, Data: data, Once: true}, attr)
		if err := cmd.Wait(); err != nil {
			t.Errorf("an ordinary user with data %q: %v", data, err)
		}
		if got.UID == 0 {
			t.Errorf("the helper ran as uid %d, want an ordinary user", got.UID)
		}
		if _, err := os.Stat(got.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after the end: %v, want that it is gone", got.Dir, err)
		}
	}
}

// Under a tight umask nothing that is made is open to the account that root hands the server to, unless
// that is said.
func TestTightUmask(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	cmd, _ := startHelper(t, os.Args[0], helperOrder{Base: base, Data: filepath.Join(base, "deep", "data"), Once: true, Umask: 0o077}, nil)
	if err := cmd.Wait(); err != nil {
		t.Errorf("start under umask 077: %v", err)
	}
	wantNoHomes(t, base)
}
