"""FMware: filter streams of XML messages and match what passes against a local XML store."""
