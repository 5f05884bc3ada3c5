// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
)

// shop is what the rules of these tests read.
const shop = `
CREATE TABLE public.watchers (person text, types text[], team int);
GRANT SELECT ON public.watchers TO bothy_app;
CREATE TABLE public.secrets (id uuid, person text);
CREATE SCHEMA private;
CREATE TABLE private.notes (person text);
GRANT USAGE ON SCHEMA private TO bothy_app;
GRANT SELECT ON private.notes TO bothy_app;
CREATE VIEW public.people AS SELECT person FROM public.secrets;
CREATE VIEW public.people_invoker WITH (security_invoker) AS SELECT person FROM public.secrets;
GRANT SELECT ON public.people, public.people_invoker TO bothy_app;
CREATE TABLE public.members (person text, tenant int);
ALTER TABLE public.members ENABLE ROW LEVEL SECURITY;
GRANT SELECT ON public.members TO bothy_app;
CREATE TABLE public.tenants (person text, tenant int);
ALTER TABLE public.tenants ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON public.tenants FOR SELECT USING (tenant = current_setting('shop.tenant', true)::int);
GRANT SELECT ON public.tenants TO bothy_app;
CREATE TABLE public.everyone (person text);
ALTER TABLE public.everyone ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_rows ON public.everyone FOR SELECT TO bothy_app USING (true);
GRANT SELECT ON public.everyone TO bothy_app;
CREATE FUNCTION public.pick(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
CREATE TABLE public.large (id bigint, person text, tags text[]);
INSERT INTO public.large SELECT i, 'p' || i, ARRAY['order.created'] FROM generate_series(1, 20000) i;
ANALYZE public.large;
CREATE TABLE public.indexed (id bigint PRIMARY KEY, person text);
INSERT INTO public.indexed SELECT i, 'p' || i FROM generate_series(1, 20000) i;
ANALYZE public.indexed;
CREATE TABLE public.fresh (id bigint PRIMARY KEY, person text) WITH (autovacuum_enabled = false);
INSERT INTO public.fresh SELECT i, repeat('p', 100) FROM generate_series(1, 20000) i;
GRANT SELECT ON public.large, public.indexed, public.fresh TO bothy_app`

// inRules is a configuration with one consumer for each query.
func inRules(t *testing.T, url, sections string, queries ...string) *config.Config {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\ndatabase:\n  url: ${URL}\n%s\nconsumers:\n", sections)
	for i, q := range queries {
		fmt.Fprintf(&b, "  - name: consumer-%d\n    job: {kind: test.a%d}\n    recipients:\n      query: |\n", i+1, i+1)
		for line := range strings.SplitSeq(q, "\n") {
			b.WriteString("        " + line + "\n")
		}
	}
	cfg, problems := config.Parse("consumers.yaml", []byte(b.String()), func(name string) (string, bool) { return url, name == "URL" })
	if err := problems.Err(); err != nil {
		t.Fatalf("the test's configuration:\n%s\n%v", b.String(), err)
	}
	return cfg
}

// about is each problem in short: its code and, for an error, what it says.
func about(problems problem.List) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s: %s | %s", p.Code, p.What, p.Fix))
	}
	return all
}

func checkDatabase(t *testing.T, cfg *config.Config) problem.List {
	t.Helper()
	problems, err := engine.CheckDatabase(t.Context(), cfg)
	if err != nil {
		t.Fatalf("CheckDatabase: %v", err)
	}
	return problems
}

// Each mistake that only a database can see, asked as the app itself, as an administrator that may become the
// app, and as one that may not: all three say the same of every rule.
func TestCheckDatabaseRules(t *testing.T) {
	t.Parallel()
	const shape = "SELECT b.seq, x.person AS recipient FROM batch b JOIN %s x ON true"
	tests := []struct {
		name, query string
		want        []string // code, and texts that have to be there
	}{
		{"sound", fmt.Sprintf(shape, "public.watchers"), nil},
		{"syntax", "SELECT b.seq b.type FROM batch b", []string{`bad-rule`, `syntax error at or near "."`}},
		{"table", fmt.Sprintf(shape, "public.watcher"), []string{`unknown-relation`, `"public.watcher" does not exist`, `did you mean public.watchers?`}},
		{"column", "SELECT b.seq, w.persn AS recipient FROM batch b JOIN public.watchers w ON true", []string{`unknown-column`, `Perhaps you meant to reference the column "w.person"`}},
		{"right", fmt.Sprintf(shape, "public.secrets"), []string{`unreadable-relation`, `run: GRANT SELECT ON TABLE "public"."secrets" TO "bothy_app"`}},
		{"invoker view", fmt.Sprintf(shape, "public.people_invoker"), []string{`unreadable-relation`, `through the view public.people_invoker`, `run: GRANT SELECT ON TABLE "public"."secrets" TO "bothy_app"`}},
		{"owner's view", fmt.Sprintf(shape, "public.people"), nil},
		{"no policy", fmt.Sprintf(shape, "public.members"), []string{`hidden-rows`, `shows the role bothy_app no row at all`, `CREATE POLICY bothy_reads ON "public"."members" FOR SELECT TO "bothy_app" USING (true)`}},
		{"a policy", fmt.Sprintf(shape, "public.tenants"), []string{`hidden-rows`, `(policy own_tenant)`}},
		{"an open policy", fmt.Sprintf(shape, "public.everyone"), nil},
		{"seq is text", "SELECT b.seq::text AS seq, 'alex' AS recipient FROM batch b", []string{`bad-rule-columns`, `gives seq as text`}},
		{"recipient is a uuid", "SELECT b.seq, b.id AS recipient FROM batch b", []string{`bad-rule-columns`, `gives recipient as uuid`, `...::text AS recipient`}},
		{"recipient is an array", "SELECT b.seq, b.audience AS recipient FROM batch b", []string{`bad-rule-columns`, `gives recipient as text[]`, `unnest(...)`}},
		{"misspelt", "SELECT b.seq, b.type AS recipent FROM batch b", []string{`bad-rule-columns`, `gives no column recipient, but seq, recipent`, `did you mean recipient?`}},
		{"twice", "SELECT b.seq, b.seq, b.type AS recipient FROM batch b", []string{`bad-rule-columns`, `gives 2 columns named seq`}},
		{"locks", "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON true FOR UPDATE OF w", []string{`rule-writes`}},
		{"volatile", "SELECT b.seq, public.pick(b.type) AS recipient FROM batch b", []string{`volatile-rule`, `calls public.pick, which is VOLATILE`}},
		{"large, no index", "SELECT b.seq, l.person AS recipient FROM batch b JOIN public.large l ON l.id = b.seq", []string{`large-scan`, `reads public.large from end to end in every round, about 20000 rows`, `CREATE INDEX CONCURRENTLY ON "public"."large" (id)`}},
		{"large, array", "SELECT b.seq, l.person AS recipient FROM batch b JOIN public.large l ON b.type = ANY (l.tags)", []string{`large-scan`, `compare with tags @> ARRAY[...]`, `USING gin (tags)`}},
		{"large, an index", "SELECT b.seq, l.person AS recipient FROM batch b JOIN public.indexed l ON l.id = b.seq", nil},
		{"search path", fmt.Sprintf(shape, "notes"), nil}, // of the app's own sessions, where the schema is not named
		{"never analysed", "SELECT b.seq, l.person AS recipient FROM batch b JOIN public.fresh l ON l.id = b.seq", []string{`never-analysed`, `run: ANALYZE "public"."fresh"`}},
	}
	names, queries := make([]string, len(tests)), make([]string, len(tests))
	for i, tt := range tests {
		names[i], queries[i] = fmt.Sprintf("consumer-%d", i+1), tt.query
	}
	db := enginetest.New(t, enginetest.WithConsumers(names...))
	for statement := range strings.SplitSeq(shop, ";\n") {
		db.Exec(t, statement)
	}
	db.Exec(t, `ALTER ROLE bothy_app IN DATABASE `+db.Name+` SET search_path = private, public`)
	db.Append(t, 5)
	for who, url := range map[string]string{"as the app": db.AppURL, "as an administrator": db.AdminURL} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			problems := checkDatabase(t, inRules(t, url, "  roles: {owner: bothy_owner, app: bothy_app}\nsync: {partitions_ahead: 1}", queries...))
			for i, tt := range tests {
				mine := problem.List{}
				for _, p := range problems {
					if strings.Contains(p.What, fmt.Sprintf("consumer %q ", names[i])) {
						mine = append(mine, p)
					}
				}
				text := strings.Join(about(mine), "\n")
				if tt.want == nil && len(mine) > 0 || tt.want != nil && len(mine) != 1 {
					t.Errorf("%s: %s\ngot %d problems:\n%s", tt.name, tt.query, len(mine), text)
				}
				for j, want := range tt.want {
					if j == 0 && !strings.HasPrefix(text, want+":") || !strings.Contains(text, want) {
						t.Errorf("%s: %s\ngot %s\nwant %s", tt.name, tt.query, text, want)
					}
				}
			}
			for _, p := range problems {
				if !strings.Contains(p.What, "the query of consumer") && p.Code != "other-role" {
					t.Errorf("beside the rules: %s", p)
				}
			}
		})
	}
}

// Servers that a test cannot have.
func TestCheckDatabaseServers(t *testing.T) {
	t.Parallel()
	cfg := inRules(t, "postgres://shop", "  roles: {app: bothy_app}", "SELECT b.seq, b.type AS recipient FROM batch b")
	good := postgres.Server{Version: 18, Encoding: "UTF8", Role: "bothy_app"}
	for want, change := range map[string]func(s *postgres.Server){
		"":             func(*postgres.Server) {},
		"old-server":   func(s *postgres.Server) { s.Version = 14 },
		"new-server":   func(s *postgres.Server) { s.Version = 19 },
		"bad-encoding": func(s *postgres.Server) { s.Encoding = "LATIN1" },
		"standby":      func(s *postgres.Server) { s.Standby = true },
		"other-role":   func(s *postgres.Server) { s.Role = "shop" },
	} {
		server := good
		change(&server)
		problems := engine.ServerProblems(cfg, server)
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || problems[0].Code != want || problems[0].At.Line < 3) {
			t.Errorf("%+v: got %v, want %q alone, in the section database", server, problems, want)
		}
	}
}

// Where database.url does not lead in, the engine cannot run: that is one problem, on one line. The rest is looked at
// as database.admin_url, and nothing is said of a role that nobody asked as. Where neither leads in, it is an error.
func TestCheckDatabaseConnections(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("consumer-1"))
	db.Exec(t, `CREATE TABLE public.watchers (person text)`)
	const (
		plain = "SELECT b.seq, b.type AS recipient FROM batch b"
		reads = "SELECT b.seq, w.person AS recipient FROM batch b JOIN public.watchers w ON true"
		roles = "  roles: {owner: bothy_owner, app: bothy_app}\n"
	)
	nowhere := strings.Replace(db.AppURL, db.Name, "no_such_database", 1)
	for name, tt := range map[string]struct {
		url, sections, query string
		want                 []string // a part of each problem
	}{
		"no such database": {nowhere, roles, plain, []string{`database "no_such_database" does not exist`}},
		"no such role":     {strings.Replace(db.AppURL, "bothy_app", "nobody_at_all", 1), "", plain, []string{`no-connection`}},
		"nobody listens":   {"postgres://bothy_app@127.0.0.1:1/shop", roles, plain, []string{"127.0.0.1:1: connect: connection refused"}},
		"a right that the app lacks": {nowhere, "", reads, []string{
			`no-connection`, `the role bothy_app may not | run: GRANT SELECT ON TABLE "public"."watchers" TO "bothy_app"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := about(checkDatabase(t, inRules(t, tt.url, "  admin_url: "+db.AdminURL+"\n"+tt.sections+"sync: {partitions_ahead: 1}", tt.query)))
			if len(got) != len(tt.want) || !strings.HasPrefix(got[0], "no-connection: ") {
				t.Fatalf("got %d problems, want %d, and first no-connection:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) || strings.Contains(got[i], "\n") {
					t.Errorf("problem %d: got %s\nwant one line with %s", i+1, got[i], want)
				}
			}
		})
	}
	if _, err := engine.CheckDatabase(t.Context(), inRules(t, nowhere, "", plain)); err == nil || !strings.Contains(err.Error(), "no_such_database") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a way in: got %v, want an error of one line that names the database", err)
	}
}

// Nothing of a check stays: not in the catalog, not in the log, not in a session.
func TestCheckDatabaseChangesNothing(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("consumer-1"))
	db.Append(t, 3)
	state := func() (all string) {
		t.Helper()
		err := admin(t, db).QueryRow(t.Context(), `SELECT concat_ws(' ', (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc),
	(SELECT seq FROM bothy.event_seq), (SELECT count(*) FROM bothy.event_consumer_cursors), (SELECT count(*) FROM river_job),
	(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()))`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	_ = checkDatabase(t, inRules(t, db.AdminURL, "  roles: {owner: bothy_owner, app: bothy_app}", "SELECT b.seq, b.type AS recipient FROM batch b"))
	waitUntil(t, "the connections have ended", func() bool { return state() == before })
}

// Case 35: everything is seen through a pooler in transaction mode too, and that LISTEN and migrate will not work
// there is said where the URL is written.
func TestCheckDatabaseThroughPooler(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("consumer-1"))
	db.Append(t, 3)
	pooled := enginetest.Pooler(t, db.AppURL, false)
	for name, tt := range map[string]struct {
		url, sections string
		want          []string
	}{
		"everything": {pooled, "", []string{"database.admin_url a connection", "database.listen_url a connection", "consumer-1"}},
		"the rest":   {pooled, "  listen_url: " + db.AppURL + "\n  admin_url: " + db.AdminURL + "\n", []string{"consumer-1"}},
		"listening":  {db.AppURL, "  listen_url: " + pooled + "\n", []string{"database.listen_url a connection", "consumer-1"}},
		"migrating":  {db.AppURL, "  admin_url: " + pooled + "\n", []string{"name the server itself", "consumer-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := checkDatabase(t, inRules(t, tt.url, tt.sections+"  roles: {owner: bothy_owner, app: bothy_app}\nsync: {partitions_ahead: 1}", "SELECT b.sq, b.type AS recipient FROM batch b"))
			got := about(problems)
			if len(got) != len(tt.want) {
				t.Fatalf("got %d problems, want %d:\n%s", len(got), len(tt.want), strings.Join(got, "\n"))
			}
			for i, want := range tt.want {
				if code := "pooled-connection"; !strings.Contains(got[i], want) || want != "consumer-1" && !strings.HasPrefix(got[i], code) {
					t.Errorf("problem %d: got %s, want %q", i+1, got[i], want)
				}
			}
		})
	}
}
