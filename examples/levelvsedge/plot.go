package levelvsedge

import (
	"bytes"
	"fmt"
)

// The picture's size and that of the field in it, in pixels.
const (
	width, height       = 720, 320
	left, right         = 48, 700
	top, bottom         = 48, 272
	distanceMax         = 24 // pods; no seed that is drawn comes higher
	ticksMark, podsMark = 50, 4
)

// Plot draws, as an SVG, how far the applications are from what they should be in the course of a
// level-triggered and an edge-triggered run under one seed.
func Plot(seed uint64) ([]byte, error) {
	edge := Controller
	edge.Level = false
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	axes(&b)
	for _, line := range []struct {
		config             Config
		color, label, name string
		y                  int
	}{
		{edge, "#c2410c", "edge-triggered: applies each event it hears of", "edge", 20},
		{Controller, "#1d4ed8", "level-triggered: looks, and does what is missing", "level", 38},
	} {
		out, err := Run(line.config, seed)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `<polyline id="%s" fill="none" stroke="%s" stroke-width="1.5" points="`, line.name, line.color)
		for tick, distance := range out.Distance {
			fmt.Fprintf(&b, "%d,%d ", xOf(tick), yOf(distance))
		}
		fmt.Fprintf(&b, "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", left+8, line.y, line.color, line.label)
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// axes draws the field: pods away from what is desired, over ticks.
func axes(b *bytes.Buffer) {
	for tick := 0; tick <= ticks; tick += ticksMark {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">%d</text>`+"\n", xOf(tick), bottom+16, tick)
	}
	for pods := 0; pods <= distanceMax; pods += podsMark {
		fmt.Fprintf(b, `<path d="M%d %dH%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end" fill="#555">%d</text>`+"\n",
			left, yOf(pods), right, left-6, yOf(pods)+4, pods)
	}
	fmt.Fprintf(b, `<path d="M%d %dV%d" stroke="#999" stroke-dasharray="4 3"/>`+"\n", xOf(trouble), top, bottom)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#555">no more pods die</text>`+"\n", xOf(trouble)+6, top+12)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#555">ticks</text>`+"\n", (left+right)/2, bottom+36)
	fmt.Fprintf(b, `<text x="14" y="%d" text-anchor="middle" fill="#555" transform="rotate(-90 14 %d)">pods away</text>`+"\n",
		(top+bottom)/2, (top+bottom)/2)
}

func xOf(tick int) int     { return left + tick*(right-left)/ticks }
func yOf(distance int) int { return bottom - min(distance, distanceMax)*(bottom-top)/distanceMax }
