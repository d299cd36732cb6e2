package core

// Meanwhile has something done between the two looks that a call of a reader takes next.
func (r *Reader) Meanwhile(do func()) {
	r.meanwhile = func() {
		r.meanwhile = nil
		do()
	}
}
