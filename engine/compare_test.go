// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine"
)

// The comparison must be able to fail: each kind of damage shows as what it is.
func TestCompareFindsDamage(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Append(t, 5)
	wantRound(t, e, "push", "processed")
	db.Exec(t, `DELETE FROM public.river_job WHERE args @> '{"seq": 2, "recipient": "alex"}'`)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args, kind, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 3}'`)
	db.Exec(t, `INSERT INTO public.river_job (args, kind, max_attempts, tags) SELECT args || '{"recipient": "robin"}', kind, max_attempts, tags FROM public.river_job WHERE args @> '{"seq": 4, "recipient": "sam"}'`)
	got, err := e.Compare(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Comparison{Consumer: "push", Events: 5, Expected: 10, Found: 12, Missing: 1, Doubled: 2, Extra: 1}
	if diff := cmp.Diff([]engine.Comparison{want}, got); diff != "" || got[0].Sound() {
		t.Errorf("Compare (-want +got):\n%s", diff)
	}
}
