"""Names of people and words of titles, many of them with letters that need care."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GIVEN = _words("""
    Ada Agnès André Ángel Anna Aslı Björn Cécile Chloë Claudia Daniel David Dominik Édith Elena
    Emma Eva Fernando François Georg Grace Günther Håkan Hélène Ines Ivan Jan Jean-Luc Jesús João
    Jörg José Julia Jürgen Karel Karen Katarína Lars Laura Lei Luís Maria Márta Matthias Ming
    Måns Nadia Niels Noël Olga Óscar Paul Peter René Robert Rosa Sofía Søren Stefan Teresa
    Thérèse Ümit Vera Wei Wojciech Xavier Yuki Zoë
""")
FAMILY = _words("""
    Aguëro Åkesson Bäcker Béranger Brontë Castaño Çelik Côté Dvořák Ekström Fernández Fuß García
    Gödel Grünwald Hämäläinen Hernández Ibáñez Jørgensen Köhler Krüger Lévy Löwe Mañas Møller
    Müller Muñoz Núñez Öztürk Peña Pérez Quiñones Rodríguez Sánchez Schröder Strauß Sørensen Tóth
    Ünal Vázquez Weiß Yáñez Zürn
""")
TOPICS = _words("""
    adaptive approximate automata-based balanced bounded causal compact concurrent continuous
    correct cost-based declarative distributed dynamic efficient exact fault-tolerant faster
    incremental indexed joint layered lazy learned linear local lossless optimal parallel
    partitioned persistent probabilistic random recursive relational robust scalable semantic
    shared sparse stable streaming structural symmetric temporal typed verified
""")
THINGS = _words("""
    algebra algorithms automata brokers caches catalogs clusters compilers constraints corpora
    databases documents encodings evaluation events expressions filters grammars graphs indexes
    integration joins kernels labels languages lattices ledgers logics messages models networks
    operators optimizers paths patterns pipelines planning processing proofs protocols queries
    records routing schemas scheduling search sensors sequences storage streams summaries tables
    transactions trees views warehouses workloads
""")
LINKS = ("for", "of", "with", "in", "over", "under", "by", "and", "without", "from")
MARKED = (
    "<i>k</i>-ary", "O(<i>n</i> log <i>n</i>)", "H<sub>2</sub>O", "2<sup>n</sup>", "L<sup>p</sup>",
    "<tt>malloc</tt>", "<i>in situ</i>", "x<sub>i<sup>2</sup></sub>", "café", "naïve",
    "Schrödinger", "R&amp;D", "Möbius", "<i>ad hoc</i>", "&lt;XML&gt;",
)  # fmt: skip
