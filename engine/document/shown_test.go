// SPDX-License-Identifier: Apache-2.0

package document

import "testing"

func TestShown(t *testing.T) {
	type inner struct {
		Name  string   `yaml:"name"`
		URL   string   `yaml:"url"`
		Token Secret   `yaml:"token"`
		Lists []string `yaml:"lists"`
	}
	type outer struct {
		URL    Secret         `yaml:"url"`
		Token  string         `yaml:"token"`
		Count  int            `yaml:"count"`
		Inner  inner          `yaml:"inner"`
		Word   inner          `yaml:"word" word:"none"`
		Many   []inner        `yaml:"many"`
		Free   Value          `yaml:"free"`
		Map    map[string]int `yaml:"map"`
		Hidden []Secret       `yaml:"hidden"`
	}
	shown := (&Grammar[outer]{}).Shown()
	for key, want := range map[string]bool{
		"name": true, "lists": true, "count": true, "word": true,
		"url": false, "token": false, "inner": false, "many": false, "free": false, "map": false, "hidden": false, "nowhere": false, "": false,
	} {
		if got := shown(key); got != want {
			t.Errorf("%q: got %v, want %v", key, got, want)
		}
	}
}
