// Plot writes the picture of docs/why-level-triggered.md:
//
//	go run ./examples/levelvsedge/plot > docs/level-vs-edge.svg
package main

import (
	"fmt"
	"os"

	"github.com/setpoint-dev/setpoint/examples/levelvsedge"
)

func main() {
	picture, err := levelvsedge.Plot(42)
	if err == nil {
		_, err = os.Stdout.Write(picture)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}
