// SPDX-License-Identifier: Apache-2.0

package riverpage_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/riverpage"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// The page and its facts are below the prefix, and show the jobs of the schema.
func TestPage(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, max_attempts, queue, state) VALUES ('{"seq": 1}', 'test.push', 5, 'push', 'available')`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	page, err := riverpage.New(ctx, db.Admin(t), enginetest.JobsSchema, "/jobs", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/jobs/": "<title>", "/jobs/api/jobs?state=available": `"kind":"test.push"`} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d with %s in:\n%s", path, w.Code, want, w.Body)
		}
	}
	if _, err := riverpage.New(ctx, db.Admin(t), strings.Repeat("x", 100), "/jobs", slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a schema that cannot be one: no error")
	}
}
